"""A scenario that runs in no time, as text."""

SMALL = """\
name: small
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 1}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 20}}
horizon_s: 5
replications: 2
fleets:
  - name: one
    pools: [{gpu: rtx-4090, replicas: 1, batching: {policy: vllm}}]
"""
