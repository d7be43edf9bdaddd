"""Execution of cases on this machine or a cluster, and storage of their results.

cases           cases as jobs: read back or simulated, then stored
digest          digest of all inputs of a case
store           finished cases, one folder each
durable         files and folders that are written atomically, with checksums
precision       number of replications that a requested precision needs
cores, cluster  jobs on this machine, or on a dask.distributed cluster
"""
