"""Recognition of the files of `init --from` by their content, and their reading."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.answers.from_files.chart_values import reader_of, servers_in_values
from sim.answers.from_files.kubernetes import TEMPLATE, is_manifest, servers_in_manifest
from sim.answers.from_files.server_command import STARTS, servers_in
from sim.answers.from_files.source import FileErrors, SourceFile
from sim.answers.from_files.traffic import lines_format, objects_at_start, recording, request_log, table_format
from sim.benchdata.served import is_recording
from sim.catalogue.catalog import Catalog
from sim.catalogue.hf_config.config import ConfigError
from sim.catalogue.hf_config.load import is_config, model_from_config
from sim.infile import opened
from sim.message import Message, os_reason, placed

START_BYTES = 1_000_000
"""Size of the part of a file from which its kind is recognised, and largest command or manifest [bytes]."""
UNKNOWN = (
    "is none of the kinds of file that init reads: a log of requests (CSV, JSON Lines), a page of /metrics, a command "
    "line with `vllm serve` or `sglang.launch_server`, a Kubernetes manifest, values of llm-d or vLLM's production "
    "stack, a Ray Serve config, a docker compose file, a config.json of a model"
)
TABLES = (".csv", ".tsv")


def sources_of(
    paths: Sequence[Path], seconds: float | None, catalog: Catalog, columns: Mapping[str, str]
) -> tuple[list[SourceFile], list[tuple[str, int, str]]]:
    """Return the sources read from the files *paths*, and all mistakes; all pages of /metrics are one recording.

    *columns* names headers of a request log: column of a trace -> header.
    """
    sources: list[SourceFile] = []
    pages: list[Path] = []
    problems: list[tuple[str, int, str]] = []
    taken: set[Path] = set()
    for path in paths:
        if path.resolve() in taken:
            problems.append((str(path), 0, "is named twice"))
            continue
        taken.add(path.resolve())
        try:
            source = _source(path, catalog, columns)
            if source is None:
                pages.append(path)
            else:
                sources.append(source)
                problems += source.problems
        except FileErrors as error:
            problems += error.problems
    if pages and not problems:
        try:
            sources.append(recording(pages, seconds))
        except FileErrors as error:
            problems += error.problems
    elif seconds is not None and not pages:
        problems.append(("--seconds", 0, "is the time between pages of /metrics, and there are none"))
    if columns and not problems and not any(source.kind == "request log" for source in sources):
        problems.append(("--columns", 0, "names headers of a log of requests, and there is none"))
    return sources, problems


def _source(path: Path, catalog: Catalog, columns: Mapping[str, str]) -> SourceFile | None:
    """Return the content of one file; None for a recording of metrics. Raises FileErrors."""
    if is_config(path):
        return _config(path)
    text = _start(path)
    if not text.strip():
        raise FileErrors([(str(path), 0, "is empty")])
    first = text.lstrip()[:1]
    if first in ("{", "["):
        objects = objects_at_start(text)
        if not objects and re.match(r"\s*\{[{%#]", text):
            raise FileErrors([(str(path), 1, TEMPLATE)])
        if not objects:
            raise FileErrors([(str(path), 1, "is neither a JSON object nor JSON Lines")])
        if is_recording(objects):
            return None
        if isinstance(objects[0], dict) and (path.name == "config.json" or _describes_model(objects[0])):
            return _config(path)
        if isinstance(objects[0], dict) and objects[0].keys() >= {"apiVersion", "kind"}:
            return servers_in_manifest(path, text, catalog)
        if first == "{":
            return request_log(path, lines_format(objects[0]), columns)
        raise FileErrors([(str(path), 1, "is a list in JSON: a log has one object per line (jq -c '.[]')")])
    if path.suffix.lower() in TABLES:
        return request_log(path, table_format(path), columns)
    if is_recording(text):
        return None
    if is_manifest(text):
        return servers_in_manifest(path, text, catalog)
    if reader := reader_of(text):
        return servers_in_values(path, text, reader, catalog)
    if STARTS.search(re.sub(r"\\\r?\n", " ", text)):
        return servers_in(path, text)
    if re.search(r"[,;\t]", text.splitlines()[0]) and _looks_like_table(text):
        return request_log(path, table_format(path), columns)
    raise FileErrors([(str(path), 0, UNKNOWN)])


def _start(path: Path) -> str:
    """Return the start of a text file. Raises FileErrors."""
    try:
        with opened(path) as file:
            content: bytes = file.read(START_BYTES)
    except OSError as error:
        raise FileErrors([(str(path), 0, Message("cannot be read: {reason}", os_reason(error)))]) from None
    if b"\0" in content:
        raise FileErrors([(str(path), 0, UNKNOWN)])
    try:
        return content.decode("utf-8-sig", errors="strict" if len(content) < START_BYTES else "ignore")
    except UnicodeDecodeError as error:
        raise FileErrors([(str(path), 0, Message("is not UTF-8 text (byte {position})", error.start))]) from None


def _describes_model(keys: dict[str, object]) -> bool:
    return "model_type" in keys or "architectures" in keys


def _looks_like_table(text: str) -> bool:
    lines = [line for line in text.splitlines()[:3] if line.strip()]
    return len(lines) > 1 and len({len(re.split(r"[,;\t]", line)) for line in lines}) == 1


def _config(path: Path) -> SourceFile:
    """Return the model of a config.json or of its folder. Raises FileErrors."""
    source = SourceFile(path.name, "config.json of a model")
    try:
        model = model_from_config(path)
    except ConfigError as error:
        raise FileErrors(
            [(str(error.path), 0, placed(error.key, error.message) if error.key else error.message)]
        ) from None
    source.model = str(path.resolve())
    source.read += [
        Message(
            "{name}: {layers} layers, {max_context:,} tokens of context, weights in {native_quantization}",
            model.name,
            model.layers,
            model.max_context,
            model.native_quantization or model.native_dtype,
        )
    ]
    return source
