"""Structured file of servers during reading: line numbers of its keys, the servers found, and the mistakes."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sim.answers.from_files.gpu_labels import KEYS, PLAIN, gpu_of
from sim.answers.from_files.manifest_keys import CONTAINER, POD
from sim.answers.from_files.server_command import ALMOST, OWN, Problem, own_keys, server_of
from sim.answers.from_files.server_options import SECRET_VARIABLE
from sim.answers.from_files.shell import Command, Word, commands_in, expanded
from sim.answers.from_files.source import ServerDraft, SourceFile
from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.message import Message
from sim.yamlio import Document, YamlError, dump_line, read_text

GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu")
"""Resources that count GPUs; Dynamo calls them `gpu`."""
MORE_ARGUMENTS = "VLLM_ADDITIONAL_ARGS"
"""Environment variable with further options, which KServe's runtime appends to the command."""
Place = tuple[str | int, ...]


class Manifest:
    """Structured file of servers, with the reader of containers that all formats share."""

    def __init__(self, document: Document, source: SourceFile, problems: list[Problem], catalog: Catalog) -> None:
        self.document, self.source, self.problems, self.catalog = document, source, problems, catalog
        self.settings: Mapping[str, tuple[str, int]] = {}
        """Files in ConfigMaps of the same manifest: name -> (text, number of the line before its first)."""

    def fault(self, place: Place, text: str) -> None:
        """Add a mistake at *place*."""
        self.problems.append((self.document.path, self.document.line(place), text))

    def check_keys(self, holder: Any, place: Place, known: str, listed: str = "") -> None:
        """Refuse misspelt keys of *holder*; list other unknown keys as not simulated under the name *listed*.

        *known* has the valid keys, separated by spaces.
        """
        names = known.split()
        for key in holder if isinstance(holder, dict) else ():
            if str(key) in names:
                continue
            if near := get_close_matches(str(key), names, 1, ALMOST):
                self.fault((*place, key), Message("unknown key {key}; did you mean {near}?", key, near[0]))
            elif any(part in str(key).lower() for part in SECRET_VARIABLE):
                self.source.secrets.append(str(key))
            elif listed:
                self.source.not_simulated.append(Message("{listed}: {key} (unknown)", listed, key))

    def count(self, holder: Any, place: Place, *keys: str) -> int | None:
        """Return the whole number under *keys* of *holder*; None if it is not there, or is a mistake."""
        value = at(holder, *keys)
        if value is None:
            return None
        if not re.fullmatch(r"\d+", str(value)):
            self.fault((*place, *keys), Message("{keys} must be a whole number, not {value!r}", keys[-1], value))
            return None
        return int(value)

    def server(
        self,
        container: Mapping[Any, Any],
        place: Place,
        pod: Mapping[Any, Any],
        pod_place: Place,
        replicas: int | None,
        name: str,
        runtime: str = "",
        annotations: Any = None,
        part: str = "pool",
    ) -> ServerDraft | None:
        """Add the server that *container* starts to the source, and return it; None if it starts none.

        Parameters
        ----------
        container, place
            Container and its place in the file.
        pod, pod_place
            Pod spec that may have a node selector.
        replicas
            Number of pods; None if the file does not state it.
        name
            Name of the object, which autoscalers refer to.
        runtime
            Image of a server that the platform starts for a container without an image.
        annotations
            Annotations of the pod, which may hold further keys of a scenario.
        part
            Name of the annotation with keys of the pool.

        """
        own = SourceFile(self.source.name, self.source.kind)
        variables, hidden = _variables(container)
        words = self._words(container, place, variables)
        variables.pop(MORE_ARGUMENTS, None)
        image = str(container.get("image") or "")
        if runtime and (not image or not words or words[0].text.startswith("-")):
            image = runtime
        elif not image and words and words[0].text.startswith("-"):
            image = "vllm-openai"  # KServe's runtime brings the image
        server = server_of(Command(words, variables), self.document.path, own, self.problems, image)
        if server is None:
            return None
        if not server.place.rpartition(":")[2].isdecimal():
            server.place = f"{self.document.path}:{self.document.line(place)}"
        self.check_keys(container, place, CONTAINER)
        self.check_keys(pod, pod_place, " ".join([POD, CONTAINER]))
        self.source.read += own.read
        self.source.not_simulated += own.not_simulated
        self.source.harmless += own.harmless
        self.source.secrets += own.secrets + [one for one in hidden if one not in own.secrets]
        server.folder = Path(self.document.path).parent
        server.replicas = replicas
        server.name = name
        self._resources(container, server)
        server.gpu = self._gpu(pod, pod_place)
        for kept, keys in ((part, server.own), ("fleet", server.fleet)):
            text = annotations.get(OWN + kept) if isinstance(annotations, dict) else None
            if text is not None:
                keys |= own_keys(
                    str(text), OWN + kept, self.document.path, self.document.line(pod_place), self.problems
                )
                self.source.read.append(f"{OWN}{kept}: {', '.join(map(str, keys))}")
        self.source.servers.append(server)
        count = 1 if replicas is None else replicas
        self.source.read.append(
            Message("{name}: replicas {count}", name, count) if name else Message("replicas: {count}", count)
        )
        return server

    def _words(self, container: Mapping[Any, Any], place: Place, variables: Mapping[str, str]) -> list[Word]:
        words = []
        for key in ("command", "args"):
            parts = container.get(key)
            for index, part in enumerate(parts if isinstance(parts, list) else [parts] if parts is not None else ()):
                line = self.document.line((*place, key, index) if isinstance(parts, list) else (*place, key))
                texts = str(part).split() if key == "args" and re.match(r"--[^\s=]+ ", str(part)) else [str(part)]
                words += [Word(expanded(text, variables), line) for text in texts]
        line = self.document.line((*place, "env"))
        for command in commands_in(variables.get(MORE_ARGUMENTS, ""), line):
            words += command.words
        return self._with_settings(words)

    def _with_settings(self, words: list[Word]) -> list[Word]:
        """Return *words* with the settings of a ConfigMap in place of `--config`; later words win over them."""
        for place, word in enumerate(words):
            option, sign, path = word.text.partition("=")
            path = path if sign else words[place + 1].text if place + 1 < len(words) else ""
            found = self.settings.get(path.rpartition("/")[2]) if option == "--config" else None
            if found is None:
                continue
            text, before = found
            try:
                document = read_text("\n" * before + text, self.document.path)
            except YamlError as error:
                self.problems.append((error.path, error.line, error.message))
                return words
            keys = document.data if isinstance(document.data, dict) else {}
            own = [Word(one, document.line((key,))) for key in keys for one in arguments({key: keys[key]})]
            return [*words[:place], *own, *words[place + (1 if sign else 2) :]]
        return words

    def _resources(self, container: Mapping[Any, Any], server: ServerDraft) -> None:
        for section in ("limits", "requests"):
            held = at(container, "resources", section)
            for key, count in held.items() if isinstance(held, dict) else ():
                if key in GPUS and str(count).isdecimal():
                    server.gpus = server.gpus or int(count)
                elif str(key).startswith("nvidia.com/mig-"):
                    server.keys["mig"] = str(key).removeprefix("nvidia.com/mig-")

    def _gpu(self, pod: Mapping[Any, Any], place: Place) -> str:
        """Return the GPU that the pod's node selector or node affinity names; empty if there is none."""
        labels = dict(_labels(pod, place))
        for key in KEYS:
            for where, value in labels.get(key, ()):
                if value.lower() in PLAIN:
                    continue
                if found := self.gpu(value, where, key):
                    self.source.read.append(Message("node label {key} {value}: gpu {found}", key, value, found))
                return found
        return ""

    def gpu(self, label: str, place: Place, key: str) -> str:
        """Return the GPU that the value *label* of *key* names; empty after a mistake."""
        try:
            return gpu_of(label, self.catalog)
        except UnknownId as error:
            self.fault(place, Message("{key}: {error} (--gpu states it)", key, error))
            return ""


def arguments(options: Mapping[Any, Any]) -> list[str]:
    """Return *options* of a file of settings as words of a command line; null leaves an option out.

    >>> arguments({"tp-size": 4, "enable_metrics": True, "seed": None, "enable-prefix-caching": False})
    ['--tp-size', '4', '--enable-metrics', '--no-enable-prefix-caching']
    """
    words: list[str] = []
    for key, value in options.items():
        option = f"--{str(key).replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option.removeprefix('--')}")
        elif value is not None:
            words += [option, dump_line(value) if isinstance(value, dict | list) else str(value)]
    return words


def at(holder: Any, *keys: str) -> Any:
    """Return the value below *holder* under *keys*; None if it is not there."""
    for key in keys:
        holder = holder.get(key) if isinstance(holder, dict) else None
    return holder


def hub_name(uri: Any) -> str:
    """Return the model of an address such as hf://Qwen/Qwen3-8B; another text stays.

    >>> hub_name("hf://Qwen/Qwen3-8B:main"), hub_name("pvc://models/Qwen3-8B")
    ('Qwen/Qwen3-8B', 'pvc://models/Qwen3-8B')
    """
    text = str(uri or "")
    return text.removeprefix("hf://").partition(":")[0] if text.startswith("hf://") else text


def _variables(container: Mapping[Any, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the variables of *container* by name, and the names of those whose values are kept elsewhere."""
    listed = container.get("env")
    if isinstance(listed, dict):
        return {str(key): str(value) for key, value in listed.items() if value is not None}, []
    known = [one for one in listed if isinstance(one, dict) and "name" in one] if isinstance(listed, list) else []
    given = {str(one["name"]): str(one["value"]) for one in known if one.get("value") is not None}
    return given, [str(one["name"]) for one in known if at(one, "valueFrom", "secretKeyRef") is not None]


def _labels(pod: Mapping[Any, Any], place: Place) -> Iterator[tuple[str, list[tuple[Place, str]]]]:
    """Yield each node label of *pod* with the places and values that it may have."""
    selector = pod.get("nodeSelector")
    for key, value in selector.items() if isinstance(selector, dict) else ():
        yield str(key), [((*place, "nodeSelector", key), str(value))]
    terms = at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    for term in terms if isinstance(terms, list) else ():
        for one in (term.get("matchExpressions") if isinstance(term, dict) else None) or ():
            if isinstance(one, dict) and one.get("operator") == "In":
                yield str(one.get("key")), [((*place, "affinity"), str(value)) for value in one.get("values") or ()]
