"""Scenarios with work to do: a training job (`job`) or a queue of jobs (`jobs`).

kinds           a `WorkKind` for each of the two: how it is computed and written
schema, load    what a scenario with `jobs` may say; how files with either are read
cluster, policies, traces
                a cluster and its queue in simulated time, queue policies, recorded jobs
plan, outcome   a queue resolved; waiting, utilisation, energy and money
report          verdict, tables and charts of a queue
"""
