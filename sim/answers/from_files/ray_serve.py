"""Models of a Ray Serve config for LLMs: `llm_configs` within its applications."""

from typing import Any

from sim.answers.from_files.autoscalers import ray_keys
from sim.answers.from_files.manifest import Manifest, Place, arguments, at
from sim.answers.from_files.manifest_keys import RAY_LOADING, RAY_MODEL
from sim.answers.from_files.source import ScalerDraft
from sim.message import Message
from sim.yamlio import YamlError, read_text


def read_serve_config(manifest: Manifest, text: str, place: Place) -> None:
    """Read the config *text*, found at *place* of the file."""
    first = manifest.document.line(place)
    try:
        document = read_text("\n" * first + text, manifest.document.path)
    except YamlError as error:
        manifest.problems.append((error.path, error.line, error.message))
        return
    read_applications(Manifest(document, manifest.source, manifest.problems, manifest.catalog))


def read_applications(manifest: Manifest) -> None:
    """Read the models of all applications, or of a file that lists `llm_configs` alone."""
    manifest.source.kind = "Ray Serve config"
    applications = at(manifest.document.data, "applications")
    holders: list[tuple[Place, Any]] = [((), manifest.document.data)]
    if isinstance(applications, list):
        holders = [(("applications", i, "args"), at(one, "args")) for i, one in enumerate(applications)]
    for place, holder in holders:
        configs = at(holder, "llm_configs")
        for index, config in enumerate(configs if isinstance(configs, list) else ()):
            if isinstance(config, dict):
                _read_model(manifest, config, (*place, "llm_configs", index))


def _read_model(manifest: Manifest, config: dict[Any, Any], place: Place) -> None:
    manifest.check_keys(config, place, RAY_MODEL, "llm_configs")
    loading = at(config, "model_loading_config")
    manifest.check_keys(loading, (*place, "model_loading_config"), RAY_LOADING)
    name, source = str(at(loading, "model_id") or ""), at(loading, "model_source")
    model = str(source if isinstance(source, str) else name)
    given = at(config, "engine_kwargs")
    args = ["--model", model, *arguments(given if isinstance(given, dict) else {})]
    deployment, where = at(config, "deployment_config"), (*place, "deployment_config")
    for key in deployment if isinstance(deployment, dict) else ():
        if key not in ("num_replicas", "autoscaling_config", "name"):
            manifest.source.not_simulated.append(Message("deployment_config: {key}", key))
    replicas = at(deployment, "num_replicas")
    fixed = manifest.count(deployment, where, "num_replicas") if replicas != "auto" else None
    scaled = at(deployment, "autoscaling_config")
    if replicas == "auto" and not isinstance(scaled, dict):
        scaled = {"min_replicas": 1, "max_replicas": 100}
    spot = (*where, "autoscaling_config")
    keys = ray_keys(manifest, scaled, spot) if isinstance(scaled, dict) else {}
    if not keys and isinstance(scaled, dict) and fixed is None:
        fixed = manifest.count(scaled, spot, "min_replicas")
    container = {"args": args, "image": "vllm-openai"}
    server = manifest.server(container, (*place, "engine_kwargs"), {}, place, fixed, name)
    if server is None:
        return
    if accelerator := at(config, "accelerator_type"):
        server.gpu = manifest.gpu(str(accelerator), (*place, "accelerator_type"), "accelerator_type")
        manifest.source.read.append(Message("accelerator_type {accelerator}: gpu {gpu}", accelerator, server.gpu))
    if keys:
        manifest.source.scalers.append(ScalerDraft(manifest.document.path, manifest.document.line(spot), name, keys))
