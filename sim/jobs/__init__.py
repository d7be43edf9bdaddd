"""Scenarios with a training job (`job`) or a queue of jobs (`jobs`).

kinds           a `WorkKind` for each of the two: its computation and its output
schema, load    schema of scenarios with `jobs`; reading of files with either section
cluster, policies, traces
                discrete-event simulation of a cluster's queue, queue policies, recorded jobs
plan, outcome   the resolved queue; its waiting times, utilisation, energy and cost
report          verdict, tables and charts of a queue
"""
