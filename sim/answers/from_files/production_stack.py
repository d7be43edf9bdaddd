"""Servers of vLLM's production stack: values of its chart, and VLLMRuntime objects of its operator."""

import re
from typing import Any

from sim.answers.from_files.autoscalers import read_scaled_object
from sim.answers.from_files.manifest import Manifest, Place, arguments, at, hub_name
from sim.answers.from_files.manifest_keys import STACK_ENGINE, STACK_MODEL, STACK_RUNTIME
from sim.answers.from_files.source import ServerDraft
from sim.message import Message

QUEUE = {"type": "prometheus", "metadata": {"query": "vllm:num_requests_waiting", "threshold": "5"}}
"""Trigger of the chart's ScaledObject where the values state none."""
ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}


def read_stack_values(manifest: Manifest) -> None:
    """Read the models of the chart's values; each is a Deployment."""
    manifest.source.kind = "values of vLLM's production stack"
    models = at(manifest.document.data, "servingEngineSpec", "modelSpec")
    for index, own in enumerate(models if isinstance(models, list) else ()):
        place: Place = ("servingEngineSpec", "modelSpec", index)
        if not isinstance(own, dict) or own.get("enabled") is False:
            continue
        manifest.check_keys(own, place, STACK_MODEL, "modelSpec")
        name = str(own.get("name") or "")
        pod = {"nodeSelector": own.get("nodeSelector"), "affinity": own.get("affinity")}
        if isinstance(terms := own.get("nodeSelectorTerms"), list):
            required = {"nodeSelectorTerms": terms}
            pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        image = f"{own.get('repository') or ''}:{own.get('tag') or ''}"
        server = _server(manifest, own, place, pod, manifest.count(own, place, "replicaCount"), name, image)
        if server is None:
            continue
        server.names = (f"{name}-deployment-vllm",)
        server.gpus = manifest.count(own, place, "requestGPU")
        server.role = ROLES.get(str(at(own, "lmcacheConfig", "kvRole")), "")
        if server.role:
            manifest.source.read.append(f"kvRole: role {server.role}")
        head = manifest.count(own.get("raySpec"), (*place, "raySpec"), "headNode", "requestGPU")
        if head is not None and server.gpus is not None:
            server.gpus = head + server.gpus * (server.replicas or 1)
            server.replicas = 1  # the pods of a Ray cluster are one server
            manifest.source.read.append(Message("raySpec: the pods of {name} are one replica", name))
        scaler = own.get("keda")
        if isinstance(scaler, dict) and scaler.get("enabled"):
            keys = {key: value for key, value in scaler.items() if key != "enabled"}
            spec = {"triggers": [QUEUE], **keys, "scaleTargetRef": {"name": name}}
            read_scaled_object(manifest, {"kind": "keda", "spec": spec}, (*place, "keda"), name)
    logic = at(manifest.document.data, "routerSpec", "routingLogic")
    if logic not in (None, "disaggregated_prefill"):
        manifest.source.not_simulated.append(Message("routingLogic {logic} (see routing of a fleet)", logic))


def read_runtime(manifest: Manifest, held: dict[Any, Any], place: Place, name: str) -> None:
    """Read a VLLMRuntime; its operator writes the ScaledObject that `autoscalingConfig` describes."""
    manifest.source.kind = "VLLMRuntime of vLLM's production stack"
    place = (*place, "spec")
    spec: Any = held.get("spec")
    manifest.check_keys(spec, place, STACK_RUNTIME, "VLLMRuntime")
    model, deployment = at(spec, "model"), at(spec, "deploymentConfig")
    own = {**(model if isinstance(model, dict) else {}), "vllmConfig": at(spec, "vllmConfig")}
    own["lmcacheConfig"] = at(spec, "lmCacheConfig")
    replicas = manifest.count(deployment, (*place, "deploymentConfig"), "replicas")
    image = str(at(deployment, "image", "name") or "")
    server = _server(manifest, own, place, {}, replicas, name, image)
    if server is None:
        return
    server.gpus = manifest.count(deployment, (*place, "deploymentConfig"), "resources", "gpu")
    scaler = at(spec, "autoscalingConfig")
    if isinstance(scaler, dict) and scaler.get("enabled"):
        running = at(scaler, "triggers", "requestsRunningThreshold")
        trigger = {"query": "vllm:num_requests_running", "threshold": 5 if running is None else running}
        policies = {key: at(scaler, f"{key}Policy") for key in ("scaleUp", "scaleDown")}
        scaled = {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": scaler.get("minReplicas", 1),
            "maxReplicaCount": scaler.get("maxReplicas"),
            "pollingInterval": scaler.get("pollingInterval", 15),
            "cooldownPeriod": at(scaler, "scaleDownPolicy", "scaleToZeroDelaySeconds"),
            "triggers": [{"type": "prometheus", "metadata": trigger}],
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(policies)}},
        }
        read_scaled_object(manifest, {"kind": "autoscalingConfig", "spec": scaled}, (*place, "autoscalingConfig"), name)


def _behavior(policies: dict[str, Any]) -> dict[str, Any]:
    """Return the HPA's behaviour for the operator's *policies* by direction, with the operator's defaults."""
    return {
        direction: {
            "stabilizationWindowSeconds": _value_or(at(own, "stabilizationWindowSeconds"), wait),
            "policies": [
                {
                    "type": "Pods",
                    "value": _value_or(at(own, "podValue"), 1),
                    "periodSeconds": _value_or(at(own, "periodSeconds"), 60),
                }
            ],
        }
        for (direction, own), wait in zip(policies.items(), (0, 300), strict=True)
    }


def _value_or(value: Any, default: int) -> Any:
    return default if value is None else value


def _server(
    manifest: Manifest,
    own: dict[Any, Any],
    place: Place,
    pod: dict[Any, Any],
    replicas: int | None,
    name: str,
    image: str,
) -> ServerDraft | None:
    """Return the server of one model: its options are keys of `vllmConfig`, in the chart's spelling."""
    engine = at(own, "vllmConfig")
    manifest.check_keys(engine, (*place, "vllmConfig"), STACK_ENGINE, "vllmConfig")
    stated = {**(engine if isinstance(engine, dict) else {})}
    stated |= {key: own[key] for key in ("maxModelLen", "maxNumSeqs", "dtype") if own.get(key) is not None}
    options = {
        _dashed(key): value for key, value in stated.items() if key not in ("v0", "v1", "port", "env", "extraArgs")
    }
    extra = stated.get("extraArgs")
    args = ["--model", hub_name(own.get("modelURL")), *arguments(options)]
    args += [str(one) for one in extra] if isinstance(extra, list) else []
    release = image if re.search(r":v?\d+\.\d+", image) and "vllm/vllm" in image else "vllm-openai"
    env = [*(own.get("env") or ()), *(stated.get("env") or ())]
    container = {"args": args, "image": release, "env": env}
    server = manifest.server(container, place, pod, place, replicas, name, annotations=own.get("podAnnotations"))
    if server is None:
        return None
    if str(stated.get("v0") or "0") == "1":
        manifest.source.not_simulated.append(Message("{name}: v0 (the engine before V1)", name))
    cache = at(own, "lmcacheConfig")
    if isinstance(cache, dict) and cache.get("enabled") and str(cache.get("diskOffloadingBufferSize") or 0) != "0":
        manifest.source.not_simulated.append(Message("{name}: KV on disk (see kv_tiers of a pool)", name))
    if isinstance(cache, dict):
        read = ("enabled", "cpuOffloadingBufferSize", "diskOffloadingBufferSize", "kvRole")
        manifest.source.harmless += [f"lmcacheConfig.{key}" for key in cache if key not in read]
    if isinstance(cache, dict) and cache.get("enabled") and str(cache.get("cpuOffloadingBufferSize") or 0) != "0":
        manifest.source.not_simulated.append(
            Message(
                "{name}: KV in host memory, {size} GB (see kv_tiers of a pool)", name, cache["cpuOffloadingBufferSize"]
            )
        )
    return server


def _dashed(key: Any) -> str:
    """Return the option's name for a key in camel case.

    >>> _dashed("gpuMemoryUtilization")
    'gpu-memory-utilization'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", str(key)).lower()
