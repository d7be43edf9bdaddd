"""Scenario drafts from files that a user has: logs, metrics, server commands, manifests, model configs.

source          what one file says: `SourceFile`, and the errors of files
kinds           the kind of a file by its content, and its reader
traffic         request logs and /metrics pages
server_options  options of vLLM and SGLang by name: the scenario key of each, or why it has none
server_command  a `vllm serve` or `python -m sglang.launch_server` command line
kubernetes      manifests whose containers run such a command
chart_values    values of charts, Ray Serve configs and docker compose files
gpu_labels      GPUs by labels of nodes and by instance types
draft           one scenario from several sources, with defaults for what they lack
summary         sentences on what was read, assumed and left out
text            the commented YAML file
"""
