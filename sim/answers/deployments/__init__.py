"""Deployments of a fleet as files for serving tools: vLLM commands, Kubernetes, KServe, llm-d, Dynamo, KEDA.

servers     servers of a fleet as tools know them: model of the Hub, options, GPUs, start time, autoscaler
objects     parts of Kubernetes manifests: containers, probes, node selectors, autoscalers
formats     a file per tool
answer      the fleet that a finished answer recommends
"""
