"""Servers of files of values and of services: charts of llm-d and vLLM, Ray Serve's configs, docker compose."""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.answers.from_files.gpu_labels import gpu_of
from sim.answers.from_files.kubernetes import begun, read_parallelism
from sim.answers.from_files.manifest import Manifest, Place, at, hub_name
from sim.answers.from_files.manifest_keys import COMPOSE_SERVICE, LLM_D_ROLE, LLM_D_VALUES
from sim.answers.from_files.production_stack import read_stack_values
from sim.answers.from_files.ray_serve import read_applications
from sim.answers.from_files.shell import commands_in, expanded
from sim.answers.from_files.source import SourceFile
from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.message import Message
from sim.yamlio import YamlError, read_text


def reader_of(text: str) -> Callable[[Manifest], None] | None:
    """Return the reader of a file without `apiVersion` by its keys at the top; None if there is none."""
    top = set(re.findall(r"^([A-Za-z_]\w*)\s*:", text, re.MULTILINE))
    if "modelArtifacts" in top:
        return _read_values
    if "llm_configs" in top or ("applications" in top and "llm_configs" in text):
        return read_applications
    if {"image", "replicaCount"} <= top and re.search(r"\bvllm\b", text):
        return _read_vllm_chart
    if "servingEngineSpec" in top:
        return read_stack_values
    if "services" in top and re.search(r"\bvllm\b|sglang", text):
        return _read_compose
    return None


def servers_in_values(path: Path, text: str, reader: Callable[[Manifest], None], catalog: Catalog) -> SourceFile:
    """Return the servers that the file *path* with *text* describes."""
    source = begun(path, text, "values")
    problems = source.problems
    if problems:
        return source
    try:
        document = read_text(text, str(path))
    except YamlError as error:
        problems.append((str(path), error.line, error.message))
        return source
    reader(Manifest(document, source, problems, catalog))
    if not source.servers and not problems:
        problems.append((str(path), 0, "describes no server of vLLM or SGLang"))
    return source


def _read_values(manifest: Manifest) -> None:
    manifest.source.kind = "values of llm-d"
    data = manifest.document.data
    manifest.check_keys(data, (), LLM_D_VALUES, "llm-d")
    model = hub_name(at(data, "modelArtifacts", "uri"))
    if "://" in model:
        model = str(at(data, "modelArtifacts", "name") or model)
    if at(data, "modelArtifacts", "authSecretName"):
        manifest.source.secrets.append("authSecretName")
    parts = [part for part in data if part in ("decode", "prefill") and isinstance(data[part], dict)]
    parts = [part for part in parts if at(data, part, "create") is not False]
    for part in parts:
        own, place = at(data, part), (part,)
        manifest.check_keys(own, place, LLM_D_ROLE, part)
        pod = {"nodeSelector": own.get("nodeSelector") or at(own, "extraConfig", "nodeSelector")}
        key, values = at(own, "acceleratorTypes", "labelKey"), at(own, "acceleratorTypes", "labelValues")
        if key and isinstance(values, list) and values:
            pod["nodeSelector"] = {str(key): values[0]}
        for index, container in enumerate(own.get("containers") or ()):
            if not isinstance(container, dict):
                continue
            where: Place = (*place, "containers", index)
            runtime = "vllm-openai" if container.get("modelCommand") in ("vllmServe", "imageDefault") else ""
            replicas = manifest.count(own, place, "replicas")
            annotations = own.get("podAnnotations") or own.get("annotations")
            server = manifest.server(container, where, pod, place, replicas, part, runtime, annotations)
            if server is None:
                continue
            server.model = model or server.model
            server.served = server.served or str(at(data, "modelArtifacts", "name") or "")
            server.role = part if len(parts) > 1 else ""
            read_parallelism(manifest, own, place, server.keys)
            if own.get("autoscaling"):
                manifest.source.not_simulated.append(
                    Message("llm-d: autoscaling of {part} (see autoscaling of a pool)", part)
                )


def _read_vllm_chart(manifest: Manifest) -> None:
    """Read the values of the chart among vLLM's examples: one Deployment, whose command is in `image`."""
    manifest.source.kind = "values of vLLM's chart"
    data = manifest.document.data
    image = f"{at(data, 'image', 'repository') or ''}:{at(data, 'image', 'tag') or ''}"
    container = {"image": image, "command": at(data, "image", "command"), "resources": data.get("resources")}
    server = manifest.server(container, ("image",), {}, (), manifest.count(data, (), "replicaCount"), "vllm")
    if server is None:
        return
    for label in data.get("gpuModels") or ():
        with suppress(UnknownId):  # the chart's default is a placeholder
            server.gpu = gpu_of(str(label), manifest.catalog)
    if at(data, "autoscaling", "enabled"):
        manifest.source.not_simulated.append("autoscaling on CPU (see autoscaling of a pool)")


def _read_compose(manifest: Manifest) -> None:
    manifest.source.kind = "docker compose file"
    services = at(manifest.document.data, "services")
    for name, service in services.items() if isinstance(services, dict) else ():
        place: Place = ("services", name)
        if not isinstance(service, dict):
            continue
        manifest.check_keys(service, place, COMPOSE_SERVICE)
        listed = service.get("environment")
        pairs = [str(one).partition("=") for one in listed] if isinstance(listed, list) else []
        variables = {key: value for key, _, value in pairs} or (listed if isinstance(listed, dict) else {})
        known = {str(key): str(value) for key, value in variables.items()}
        container: dict[str, Any] = {"image": expanded(str(service.get("image") or ""), known), "env": variables}
        for key, ours in (("entrypoint", "command"), ("command", "args")):
            given = service.get(key)
            if isinstance(given, str):
                given = [word.text for one in commands_in(given) for word in one.words]
            if isinstance(given, list):
                container[ours] = [expanded(str(one), known) for one in given]
        replicas = manifest.count(service, place, "deploy", "replicas") or manifest.count(service, place, "scale")
        server = manifest.server(container, place, {}, place, replicas, str(name), annotations=service.get("labels"))
        if server is None:
            continue
        devices = at(service, "deploy", "resources", "reservations", "devices")
        for index, one in enumerate(devices if isinstance(devices, list) else ()):
            where = (*place, "deploy", "resources", "reservations", "devices", index)
            ids = at(one, "device_ids")
            if isinstance(ids, list):
                server.gpus = sum(len(str(one).split(",")) for one in ids)
            elif at(one, "count") not in (None, "all"):
                server.gpus = manifest.count(one, where, "count")
