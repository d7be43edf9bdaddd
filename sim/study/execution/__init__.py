"""Running cases, and keeping their results on disk.

cases           cases as jobs: read back or simulated, then stored
digest          all that a case rests on, in one digest
store           finished cases, one folder each
durable         files that appear whole or not at all
precision       replications until a metric is known well enough
cores, cluster  jobs on this machine, or on a dask.distributed cluster
"""
