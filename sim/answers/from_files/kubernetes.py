"""Servers of Kubernetes manifests: containers that start an engine, their GPUs, replicas and node selectors."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.answers.from_files.gpu_labels import KEYS, PLAIN, gpu_of
from sim.answers.from_files.server_command import Problem, server_of
from sim.answers.from_files.shell import Command, Word, expanded
from sim.answers.from_files.source import SourceFile
from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.message import Message
from sim.yamlio import Document, YamlError, read_text

GPUS = ("nvidia.com/gpu", "amd.com/gpu")
"""Resources that count GPUs."""
SCALERS = ("HorizontalPodAutoscaler", "ScaledObject", "PodAutoscaler")
"""Kinds of objects that change the number of replicas."""
Place = tuple[str | int, ...]


def is_manifest(text: str) -> bool:
    """Return whether *text* looks like a Kubernetes manifest."""
    return all(re.search(rf"^\s*(- )?{key}\s*:", text, re.MULTILINE) for key in ("apiVersion", "kind"))


def servers_in_manifest(path: Path, text: str, catalog: Catalog) -> SourceFile:
    """Return the servers that the manifest *text* in the file *path* starts."""
    source = SourceFile(path.name, "Kubernetes manifest")
    problems: list[Problem] = []
    for first_line, part in _documents(text):
        try:
            document = read_text("\n" * (first_line - 1) + part, str(path))
        except YamlError as error:
            hint = "; render templates first (helm template)" if "{{" in part else ""
            problems.append((str(path), error.line, f"{error.message}{hint}"))
            continue
        items = document.data.get("items") if isinstance(document.data, dict) else None
        holders: list[tuple[Place, Any]] = (
            [(("items", i), one) for i, one in enumerate(items)] if isinstance(items, list) else [((), document.data)]
        )
        for place, manifest in holders:
            if isinstance(manifest, dict):
                _read_object(manifest, place, document, source, problems, catalog)
    if not source.servers and not problems:
        problems.append((str(path), 0, "no container starts `vllm serve` or `sglang.launch_server`"))
    source.problems = problems
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


def _read_object(
    manifest: dict[Any, Any],
    place: Place,
    document: Document,
    source: SourceFile,
    problems: list[Problem],
    catalog: Catalog,
) -> None:
    kind = str(manifest.get("kind", ""))
    named = _at(manifest, "metadata", "name")
    if kind in SCALERS:
        source.not_simulated.append(Message("{workload} (see autoscaling of a pool)", f"{kind} {named or ''}".rstrip()))
        return
    for where, key, count in _counts(manifest, place):
        if not re.fullmatch(r"\d+", str(count)):
            problems.append(
                (
                    document.path,
                    document.line(where),
                    Message("{name} must be a whole number{bound}, not {value!r}", key, "", count),
                )
            )
    for pod_place, pod, replicas in _pods(manifest, place, 1):
        containers = [((*pod_place, "containers", i), one) for i, one in enumerate(pod.get("containers") or ())]
        if isinstance(pod.get("model"), dict):  # KServe's predictor
            containers.append(((*pod_place, "model"), pod["model"]))
        for where, container in containers:
            if isinstance(container, dict):
                _read_container(container, where, pod, pod_place, replicas, document, source, problems, catalog, named)


def _counts(holder: Any, place: Place) -> Iterator[tuple[Place, str, Any]]:
    """Yield (place, key, value) of each number of replicas and of GPUs below *holder*."""
    if isinstance(holder, list):
        for index, one in enumerate(holder):
            yield from _counts(one, (*place, index))
    for key, value in holder.items() if isinstance(holder, dict) else ():
        if key in ("replicas", "minReplicas", *GPUS) and not isinstance(value, dict | list) and value is not None:
            yield (*place, key), str(key), value
        else:
            yield from _counts(value, (*place, key))


def _pods(holder: Any, place: Place, replicas: int) -> Iterator[tuple[Place, dict[Any, Any], int]]:
    """Yield (place, pod spec, replicas) of each pod below *holder*."""
    if isinstance(holder, list):
        for index, one in enumerate(holder):
            yield from _pods(one, (*place, index), replicas)
        return
    if not isinstance(holder, dict):
        return
    own = holder.get("replicas", holder.get("minReplicas"))
    if isinstance(own, int) and not isinstance(own, bool) and own > 0:
        replicas = own
    is_pod = isinstance(holder.get("containers"), list)
    if is_pod or (isinstance(holder.get("model"), dict) and "args" in holder["model"]):
        yield place, holder, replicas
        return
    for key, value in holder.items():
        yield from _pods(value, (*place, key), replicas)


def _read_container(
    container: dict[Any, Any],
    place: Place,
    pod: dict[Any, Any],
    pod_place: Place,
    replicas: int,
    document: Document,
    source: SourceFile,
    problems: list[Problem],
    catalog: Catalog,
    name: Any,
) -> None:
    variables = {
        str(one["name"]): str(one["value"])
        for one in container.get("env") or ()
        if isinstance(one, dict) and "name" in one and one.get("value") is not None
    }
    hidden = [str(one["name"]) for one in container.get("env") or () if isinstance(one, dict) and "valueFrom" in one]
    words = []
    for key in ("command", "args"):
        parts = container.get(key)
        for index, part in enumerate(parts if isinstance(parts, list) else [parts] if parts is not None else ()):
            line = document.line((*place, key, index) if isinstance(parts, list) else (*place, key))
            texts = str(part).split() if key == "args" and re.match(r"--\S+ ", str(part)) else [str(part)]
            words += [Word(expanded(text, variables), line) for text in texts]
    image = str(container.get("image") or "")
    if not image and words and words[0].text.startswith("-"):
        image = "vllm-openai"  # KServe's runtime brings the image
    own = SourceFile(source.name, source.kind)
    server = server_of(Command(words, variables), document.path, own, problems, image)
    if server is None:
        return
    source.read += own.read
    source.not_simulated += own.not_simulated
    source.harmless += own.harmless
    source.secrets += own.secrets + [one for one in hidden if one not in own.secrets]
    server.folder = Path(document.path).parent
    server.replicas = replicas
    server.name = str(name) if name else ""
    for section in ("limits", "requests"):
        held = _at(container, "resources", section)
        for key, count in held.items() if isinstance(held, dict) else ():
            if key in GPUS and str(count).isdecimal():
                server.gpus = server.gpus or int(count)
            elif str(key).startswith("nvidia.com/mig-"):
                server.keys["mig"] = str(key).removeprefix("nvidia.com/mig-")
    server.gpu = _gpu(pod, pod_place, document, problems, catalog)
    source.servers.append(server)
    source.read.append(Message("replicas: {replicas}", replicas))


def _gpu(pod: Mapping[Any, Any], place: Place, document: Document, problems: list[Problem], catalog: Catalog) -> str:
    """Return the GPU that the pod's node selector or node affinity names; empty if there is none."""
    labels = dict(_labels(pod, place))
    for key in KEYS:
        for where, value in labels.get(key, ()):
            if value.lower() in PLAIN:
                continue
            try:
                return gpu_of(value, catalog)
            except UnknownId as error:
                problems.append(
                    (document.path, document.line(where), Message("{key}: {error} (--gpu states it)", key, error))
                )
                return ""
    return ""


def _labels(pod: Mapping[Any, Any], place: Place) -> Iterator[tuple[str, list[tuple[Place, str]]]]:
    """Yield each node label of *pod* with the places and values that it may have."""
    selector = pod.get("nodeSelector")
    for key, value in selector.items() if isinstance(selector, dict) else ():
        yield str(key), [((*place, "nodeSelector", key), str(value))]
    terms = _at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    for term in terms if isinstance(terms, list) else ():
        for one in (term.get("matchExpressions") if isinstance(term, dict) else None) or ():
            if isinstance(one, dict) and one.get("operator") == "In":
                yield str(one.get("key")), [((*place, "affinity"), str(value)) for value in one.get("values") or ()]


def _at(holder: Any, *keys: str) -> Any:
    for key in keys:
        holder = holder.get(key) if isinstance(holder, dict) else None
    return holder
