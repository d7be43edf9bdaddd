"""Servers of Kubernetes manifests: workloads whose containers start an engine, and objects of serving platforms."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sim.answers.from_files.autoscalers import read_hpa, read_knative, read_scaled_object
from sim.answers.from_files.manifest import GPUS, Manifest, Place, at, hub_name
from sim.answers.from_files.manifest_keys import DEPLOYMENT, DYNAMO_COMPONENT, DYNAMO_SERVICE, LLM_INFERENCE_SERVICE
from sim.answers.from_files.production_stack import read_runtime
from sim.answers.from_files.ray_serve import read_serve_config
from sim.answers.from_files.source import SourceFile
from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.yamlio import YamlError, read_text

HELM = re.compile(
    r"[:,[-]\s*\{\{|\{\{-?\s*(?:\$?\.(?:Values|Release|Chart|Files|Template)\b|(?:include|if|else|end|range|with)\b)"
)
"""Pattern of a placeholder in a chart, and of any outside quotes."""
OTHER_SCALERS = ("PodAutoscaler", "VerticalPodAutoscaler")
"""Kinds of objects that change the number or size of replicas, without a counterpart in a scenario."""
PARALLELISM = {
    "tensor": "tensor_parallel_size",
    "pipeline": "pipeline_parallel_size",
    "data": "data_parallel_size",
    "expert": "enable_expert_parallel",
}
"""Keys of `parallelism` in KServe and llm-d, and those of a pool."""
PARALLEL_KEYS = " ".join([*PARALLELISM, "dataLocal", "dataRPCPort", "workers"])


def is_manifest(text: str) -> bool:
    """Return whether *text* looks like a Kubernetes manifest."""
    return all(re.search(rf"^\s*(- )?{key}\s*:", text, re.MULTILINE) for key in ("apiVersion", "kind"))


TEMPLATE = "is a template: render it first (helm template)"
"""Mistake of a file with placeholders."""


def template_line(text: str) -> int:
    """Return the first line of *text* with a placeholder of a Helm template, counted from 1; 0 if there is none.

    Placeholders that a controller fills in, such as KServe's {{ .Name }}, may occur inside texts of a rendered
    manifest.
    """
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if HELM.search(line) and not line.lstrip().startswith("#")), 0)


def begun(path: Path, text: str, kind: str) -> SourceFile:
    """Return the empty content of the file *path*, of a *kind*; with a problem if *text* is a template."""
    source = SourceFile(path.name, kind)
    if line := template_line(text):
        source.problems = [(str(path), line, TEMPLATE)]
    return source


def servers_in_manifest(path: Path, text: str, catalog: Catalog) -> SourceFile:
    """Return the servers that the manifest *text* in the file *path* starts, and their autoscalers."""
    source = begun(path, text, "Kubernetes manifest")
    problems = source.problems
    if problems:
        return source
    kinds: list[str] = []
    settings: dict[str, tuple[str, int]] = {}
    documents = []
    for first_line, part in _documents(text):
        try:
            document = read_text("\n" * (first_line - 1) + part, str(path))
        except YamlError as error:
            problems.append((str(path), error.line, error.message))
            continue
        items = document.data.get("items") if isinstance(document.data, dict) else None
        holders: list[tuple[Place, Any]] = (
            [(("items", i), one) for i, one in enumerate(items)] if isinstance(items, list) else [((), document.data)]
        )
        documents += [(document, place, held) for place, held in holders if isinstance(held, dict)]
    for document, place, held in documents:
        files = held.get("data") if held.get("kind") == "ConfigMap" else None
        for name, content in files.items() if isinstance(files, dict) else ():
            settings[str(name)] = str(content), document.line((*place, "data", name))
    for document, place, held in documents:
        kinds.append(str(held.get("kind", "")))
        manifest = Manifest(document, source, problems, catalog)
        manifest.settings = settings
        _read_object(manifest, held, place)
    if not (source.servers or source.scalers or source.not_simulated or problems):
        named = ", ".join(dict.fromkeys(filter(None, kinds)))
        problems.append(
            (
                str(path),
                0,
                Message("no container starts `vllm serve` or `sglang.launch_server` (objects: {named})", named),
            )
        )
    return source


def _documents(text: str) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) of each YAML document of a file."""
    lines: list[str] = []
    first = 1
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("---"):
            if "\n".join(lines).strip():
                yield first, "\n".join(lines)
            lines, first = [], number + 1
        else:
            lines.append(line)
    if "\n".join(lines).strip():
        yield first, "\n".join(lines)


def _read_object(manifest: Manifest, held: dict[Any, Any], place: Place) -> None:
    kind, name = str(held.get("kind", "")), str(at(held, "metadata", "name") or "")
    if kind in OTHER_SCALERS:
        manifest.source.not_simulated.append(
            Message("{kind} {name} (see autoscaling of a pool)", kind, name).replace("  ", " ")
        )
        return
    for where, key, count in _counts(held, place):
        if not re.fullmatch(r"\d+", str(count)):
            manifest.fault(where, Message("{key} must be a whole number, not {count!r}", key, count))
    READERS.get(kind, _read_workload)(manifest, held, place, name)


def _read_workload(manifest: Manifest, held: dict[Any, Any], place: Place, name: str) -> None:
    if held.get("kind") == "Deployment":
        manifest.check_keys(held.get("spec"), (*place, "spec"), DEPLOYMENT)
    for pod_place, pod, replicas, annotations in _pods(held, place, None, None):
        containers = [((*pod_place, "containers", i), one) for i, one in enumerate(pod.get("containers") or ())]
        model = pod.get("model")
        if isinstance(model, dict):  # a predictor of KServe
            containers.append(((*pod_place, "model"), model))
        for where, container in containers:
            if not isinstance(container, dict):
                continue
            server = manifest.server(container, where, pod, pod_place, replicas, name, annotations=annotations)
            if server is not None and at(held, "spec", "replicas") == 0:
                manifest.source.not_simulated.append(Message("{name}: replicas 0 (read as not stated)", name))
            if server is not None and held.get("kind") == "StatefulSet" and server.nodes > 1:
                server.replicas = max(1, (replicas or 1) // server.nodes)
                server.gpus = server.gpus and server.gpus * server.nodes
                manifest.source.read.append(Message("{name}: a replica is {nodes} pods", name, server.nodes))
            if server is not None and container is model:
                server.model = server.model or hub_name(at(container, "storageUri"))
                read_knative(manifest, pod, pod_place, name)


def _read_groups(manifest: Manifest, held: dict[Any, Any], place: Place, name: str) -> None:
    """Read a LeaderWorkerSet, or the roles of a DisaggregatedSet: a replica is a group of pods, one server."""
    spec, place = held.get("spec"), (*place, "spec")
    roles = at(spec, "roles")
    groups: list[tuple[str, Any, Place]] = [("", spec, place)]
    if isinstance(roles, list):
        groups = [(str(at(one, "name")), at(one, "spec"), (*place, "roles", i, "spec")) for i, one in enumerate(roles)]
    copies = manifest.count(spec, place, "slices") or 1
    for role, own, where in groups:
        size = manifest.count(own, where, "leaderWorkerTemplate", "size") or 1
        replicas = manifest.count(own, where, "replicas")
        for key in ("leaderTemplate", "workerTemplate"):
            template, pod_place = at(own, "leaderWorkerTemplate", key), (*where, "leaderWorkerTemplate", key, "spec")
            pod = at(template, "spec")
            containers = at(pod, "containers")
            found = []
            for index, container in enumerate(containers if isinstance(containers, list) else ()):
                if not isinstance(container, dict):
                    continue
                sized = {"name": "LWS_GROUP_SIZE", "value": size}  # variable that the controller sets
                whole = container | {"env": [*(container.get("env") or ()), sized]}
                server = manifest.server(
                    whole,
                    (*pod_place, "containers", index),
                    pod,
                    pod_place,
                    None if replicas is None else replicas * copies,
                    f"{name}-{role}" if role else name,
                    annotations=at(template, "metadata", "annotations"),
                )
                if server is not None:
                    found.append(server)
                    server.gpus = server.gpus and server.gpus * size
                    stated = role or str(at(template, "metadata", "labels", "llm-d.ai/role") or "")
                    server.role = server.role or (stated if stated in ("prefill", "decode") else "")
            if found:
                break  # the workers' pods belong to the leader's server


def _counts(holder: Any, place: Place) -> Iterator[tuple[Place, str, Any]]:
    """Yield (place, key, value) of each number of replicas and of GPUs below *holder*."""
    if isinstance(holder, list):
        for index, one in enumerate(holder):
            yield from _counts(one, (*place, index))
    for key, value in holder.items() if isinstance(holder, dict) else ():
        if key in ("nodeSelector", "matchLabels", "labels", "annotations"):
            continue
        if key in ("replicas", "minReplicas", *GPUS) and not isinstance(value, dict | list) and value is not None:
            yield (*place, key), str(key), value
        else:
            yield from _counts(value, (*place, key))


def _pods(
    holder: Any, place: Place, replicas: int | None, annotations: Any
) -> Iterator[tuple[Place, dict[Any, Any], int | None, Any]]:
    """Yield (place, pod spec, replicas, annotations) of each pod below *holder*."""
    if isinstance(holder, list):
        for index, one in enumerate(holder):
            yield from _pods(one, (*place, index), replicas, annotations)
        return
    if not isinstance(holder, dict):
        return
    own = holder.get("replicas", holder.get("minReplicas"))
    if isinstance(own, int) and not isinstance(own, bool) and own > 0:
        replicas = own
    annotations = at(holder, "metadata", "annotations") or annotations
    is_pod = isinstance(holder.get("containers"), list)
    if is_pod or (isinstance(holder.get("model"), dict) and "args" in holder["model"]):
        yield place, holder, replicas, annotations
        return
    for key, value in holder.items():
        yield from _pods(value, (*place, key), replicas, annotations)


NOT_READ = {
    "scaling": "autoscaling of a pool",
    "workload": "kv_tiers of a pool",
    "speculator": "batching.speculative of a pool",
    "worker": "network of a pool",
    "baseRefs": "the files that it names",
}
"""Keys of an LLMInferenceService that are listed as not simulated -> where to state them."""


def _read_service(manifest: Manifest, held: dict[Any, Any], place: Place, name: str) -> None:
    """Read KServe's LLMInferenceService: `spec` has the decode or only servers, `spec.prefill` those of prompts."""
    manifest.source.kind = "KServe LLMInferenceService"
    place = (*place, "spec")
    spec = held.get("spec")
    model = hub_name(at(spec, "model", "uri"))
    if "://" in model:
        model = str(at(spec, "model", "name") or model)
    if at(spec, "router", "scheduler") is not None:
        manifest.source.not_simulated.append("LLMInferenceService: router.scheduler (see routing of a fleet)")
    for part, where in (("prefill", (*place, "prefill")), ("", place)):
        own = at(spec, part) if part else spec
        if not isinstance(own, dict):
            continue
        manifest.check_keys(own, where, LLM_INFERENCE_SERVICE, "LLMInferenceService")
        pod = own.get("template") if isinstance(own.get("template"), dict) else {}
        containers = at(pod, "containers")
        container: dict[Any, Any] = {}
        index = 0
        for number, one in enumerate(containers if isinstance(containers, list) else ()):
            if isinstance(one, dict) and (not container or one.get("name") == "main"):
                container, index = one, number
        server = manifest.server(
            container,
            (*where, "template", "containers", index),
            pod or {},
            (*where, "template"),
            manifest.count(own, where, "replicas"),
            f"{name}-{part}" if part else name,
            "vllm-openai",
            at(held, "metadata", "annotations"),
            part or "pool",
        )
        if server is None:
            continue
        server.names = (f"{name}-kserve-{part}",) if part else (f"{name}-kserve",)
        server.model = model or server.model
        server.served = server.served or str(at(spec, "model", "name") or "")
        split = isinstance(at(spec, "prefill"), dict)
        server.role = part or ("decode" if split else "")
        read_parallelism(manifest, own, where, server.keys)
        local = manifest.count(at(own, "parallelism"), (*where, "parallelism"), "dataLocal")
        if local and server.gpus:
            server.gpus *= max(1, int(server.keys.get("data_parallel_size", 1)) // local)
        for key, instead in NOT_READ.items():
            if key in own:
                manifest.source.not_simulated.append(
                    Message("LLMInferenceService: {key} (see {instead})", key, instead)
                )


def read_parallelism(manifest: Manifest, holder: Any, place: Place, keys: dict[str, Any]) -> None:
    """Read `parallelism` of *holder* into *keys* of a pool, where the command does not state them."""
    given = at(holder, "parallelism")
    place = (*place, "parallelism")
    manifest.check_keys(given, place, PARALLEL_KEYS, "parallelism")
    for key, value in given.items() if isinstance(given, dict) else ():
        if key not in PARALLELISM:
            continue
        number = value if key == "expert" else manifest.count(given, place, key)
        if number is not None and PARALLELISM[key] not in keys:
            keys[PARALLELISM[key]] = number
            manifest.source.read.append(
                Message("parallelism.{key}: {parallelism} {number}", key, PARALLELISM[key], str(number).lower())
            )


def _read_graph(manifest: Manifest, held: dict[Any, Any], place: Place, name: str) -> None:
    """Read the workers of Dynamo's graph; a component deployment is a graph of one."""
    manifest.source.kind = "Dynamo graph"
    spec = held.get("spec")
    services, components = at(spec, "services"), at(spec, "components")
    parts: list[tuple[str, Any, Place]] = [(name, spec, (*place, "spec"))]
    if isinstance(components, list):
        parts = [(str(at(one, "name")), one, (*place, "spec", "components", i)) for i, one in enumerate(components)]
    elif isinstance(services, dict):
        parts = [(str(key), one, (*place, "spec", "services", key)) for key, one in services.items()]
    for key, service, where in parts:
        if not isinstance(service, dict):
            continue
        pod = at(service, "extraPodSpec") or {}
        container, pod_place = at(pod, "mainContainer"), (*where, "extraPodSpec")
        container_place: Place = (*pod_place, "mainContainer")
        if isinstance(components, list):  # version v1beta1 of the graph
            manifest.check_keys(service, where, DYNAMO_COMPONENT, "Dynamo")
            pod, pod_place = at(service, "podTemplate", "spec") or {}, (*where, "podTemplate", "spec")
            containers = [(i, one) for i, one in enumerate(at(pod, "containers") or ()) if isinstance(one, dict)]
            index, container = next((one for one in containers if one[1].get("name") == "main"), (0, {}))
            container_place = (*pod_place, "containers", index)
        else:
            manifest.check_keys(service, where, DYNAMO_SERVICE, "Dynamo")
        kind = str(service.get("componentType") or service.get("type") or "")
        if kind == "planner":
            manifest.source.not_simulated.append(Message("Dynamo: {key} (see autoscaling of a pool)", key))
        if not isinstance(container, dict):
            continue
        envs = [*(container.get("env") or ()), *(service.get("envs") or ())]
        mode = next((at(one, "value") for one in envs if at(one, "name") == "DYN_ROUTER_MODE"), None)
        if mode not in (None, "round-robin"):
            manifest.source.not_simulated.append(Message("DYN_ROUTER_MODE {mode} (see routing of a fleet)", mode))
        if kind in ("frontend", "planner", "epp"):
            continue
        whole = container | {"env": envs, "resources": service.get("resources") or container.get("resources")}
        replicas = manifest.count(service, where, "replicas")
        annotations = at(service, "annotations") or at(service, "extraPodMetadata", "annotations")
        annotations = annotations or at(service, "podTemplate", "metadata", "annotations")
        pod = {k: v for k, v in pod.items() if k != "mainContainer"}
        server = manifest.server(whole, container_place, pod, pod_place, replicas, key, annotations=annotations)
        if server is None:
            continue
        if isinstance(service.get("envFromSecret"), str):
            manifest.source.secrets.append("envFromSecret")
        server.names = (f"{name}-{key.lower()}",)
        role = str(service.get("subComponentType") or kind)
        server.role = server.role or (role if role in ("prefill", "decode") else "")
        if server.gpus is not None:
            server.gpus *= manifest.count(service, where, "multinode", "nodeCount") or 1
        if "autoscaling" in service or "scalingAdapter" in service:
            manifest.source.not_simulated.append(
                Message("Dynamo: autoscaling of {key} (see autoscaling of a pool)", key)
            )


def _read_ray(manifest: Manifest, held: dict[Any, Any], place: Place, name: str) -> None:
    """Read the Serve config within a RayService."""
    where = (*place, "spec", "serveConfigV2")
    text = at(held, "spec", "serveConfigV2")
    if not isinstance(text, str):
        manifest.fault((*place, "spec"), "serveConfigV2 is missing: it names the models")
        return
    read_serve_config(manifest, text, where)


READERS: dict[str, Callable[[Manifest, dict[Any, Any], Place, str], None]] = {
    "HorizontalPodAutoscaler": read_hpa,
    "ScaledObject": read_scaled_object,
    "LLMInferenceService": _read_service,
    "DynamoGraphDeployment": _read_graph,
    "DynamoComponentDeployment": _read_graph,
    "RayService": _read_ray,
    "LeaderWorkerSet": _read_groups,
    "DisaggregatedSet": _read_groups,
    "VLLMRuntime": read_runtime,
}
"""Readers of objects by their kind; other kinds are searched for containers."""
