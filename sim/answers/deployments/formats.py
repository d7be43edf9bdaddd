"""Files that deploy a fleet, one writer per tool."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import Any

from sim.answers.deployments.objects import PORT, annotations, node_selector, probes, resources, scaler_of
from sim.answers.deployments.servers import NoDeployment, ServerGroup, words_of
from sim.answers.from_files.kubernetes import PARALLELISM
from sim.answers.from_files.manifest import MORE_ARGUMENTS
from sim.answers.from_files.server_options import VLLM
from sim.message import Message
from sim.yamlio import dump

WIDTH = 118
"""Longest line of a comment [characters]."""
HUB = re.compile(r"[\w.-]+/[\w.-]+")
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
"""Roles of servers, and those of vLLM's KV connectors."""


def vllm(groups: Sequence[ServerGroup], head: Sequence[str]) -> str:
    """Return a shell script with a command per kind of server; the platform runs its replicas."""
    lines = ["#!/bin/sh", *_comment(head)]
    for group in groups:
        own: dict[str, Any] = {"gpu": group.gpu, "replicas": group.replicas}
        if group.resource.startswith("nvidia.com/mig-"):
            own["mig"] = group.resource.removeprefix("nvidia.com/mig-")
        kept = annotations(group, without_autoscaler=True, more=own)
        lines += ["", f"# {group.name}: {group.replicas} x {group.gpus} {group.gpu}"]
        lines += [f"# {key}: {value}" for key, value in kept.items()]
        _add_role(group)
        model, *options = map(shlex.quote, group.arguments)
        lines.append(" \\\n    ".join([" ".join([*group.program, model]), *options]))
    return "\n".join(lines) + "\n"


def kubernetes(groups: Sequence[ServerGroup], head: Sequence[str]) -> str:
    """Return a Deployment and a Service per kind of server, and an HPA or a ScaledObject for each autoscaled kind."""
    documents: list[dict[str, Any]] = []
    for group in groups:
        labels = {"app": group.name}
        _add_role(group)
        metadata = {"labels": labels} | (
            {"annotations": kept} if (kept := annotations(group, named=group.name)) else {}
        )
        pod = {"nodeSelector": node_selector(group), "containers": [_container(group)]}
        spec = {
            "replicas": group.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": pod},
        }
        documents.append(_object("apps/v1", "Deployment", group.name, spec))
        ports = [{"port": 80, "targetPort": PORT}]
        documents.append(_object("v1", "Service", group.name, {"selector": labels, "ports": ports}))
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": group.name}
        if scaler := scaler_of(group, target):
            documents.append(scaler)
    return _documents(head, documents)


def kserve(groups: Sequence[ServerGroup], head: Sequence[str]) -> str:
    """Return an LLMInferenceService per kind of server; prefill and decode servers share one."""
    prefill = [group for group in groups if group.role == "prefill"]
    others = [group for group in groups if group.role != "prefill"]
    if len(prefill) > 1 or (prefill and len(others) != 1):
        raise NoDeployment(Message("KServe has one kind of prefill servers beside one of decode servers"))
    documents = []
    for group in others:
        kept = annotations(group, named=group.name)
        spec: dict[str, Any] = {"model": _hub(group), **_workload(group)}
        if prefill:
            kept |= annotations(prefill[0], "prefill", without_autoscaler=True)
            spec["prefill"] = _workload(prefill[0])
        spec["router"] = {"route": {}, "gateway": {}, "scheduler": {}}
        held = _object("serving.kserve.io/v1alpha1", "LLMInferenceService", group.name, spec)
        if kept:
            held["metadata"]["annotations"] = kept
        documents.append(held)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{group.name}-kserve"}
        if scaler := scaler_of(group, target):
            documents.append(scaler)
    return _documents(head, documents)


def llm_d(groups: Sequence[ServerGroup], head: Sequence[str]) -> str:
    """Return values of llm-d's chart llm-d-modelservice: decode servers, and prefill servers where there are any."""
    roles = [group.role for group in groups]
    if roles not in ([""], ["prefill", "decode"], ["decode", "prefill"]):
        raise NoDeployment(
            Message(
                "llm-d's chart has one kind of decode and one of prefill servers; the fleet has {count} kinds",
                len(groups),
            )
        )
    if groups[0].engine != "vllm":
        raise NoDeployment(Message("llm-d's chart starts vLLM, and the fleet runs {engine}", groups[0].engine))
    if len({group.model for group in groups}) > 1:
        raise NoDeployment(Message("llm-d's chart has one checkpoint for all servers"))
    values: dict[str, Any] = {"modelArtifacts": _hub(groups[0]), "routing": {"servicePort": PORT}}
    for group in groups:
        options, parallel = _parallel(group)
        container = {
            "name": "vllm",
            "image": group.image,
            "modelCommand": "vllmServe",
            "args": options,
            "resources": resources(group),
            **probes(group),
        }
        part: dict[str, Any] = {
            "create": True,
            "replicas": group.replicas,
            **({"parallelism": parallel} if parallel else {}),
            "acceleratorTypes": {"labelKey": group.label[0], "labelValues": [group.label[1]]},
            "containers": [container],
        }
        if kept := annotations(group, without_autoscaler=True):
            part["podAnnotations"] = kept
        values[group.role or "decode"] = part
    if len(groups) == 1:
        values["prefill"] = {"create": False}
    return _documents(head, [values])


def dynamo(groups: Sequence[ServerGroup], head: Sequence[str]) -> str:
    """Return a DynamoGraphDeployment with a frontend and a worker per kind of server."""
    services: dict[str, Any] = {
        "Frontend": {
            "componentType": "frontend",
            "replicas": 1,
            "extraPodSpec": {"mainContainer": {"image": _runtime(groups[0])}},
        }
    }
    for group in groups:
        role: list[str] = []
        if group.role:
            role = [f"--is-{group.role}-worker"] if group.engine == "vllm" else [f"--disaggregation-mode={group.role}"]
        model = f"--model={group.model}" if group.engine == "vllm" else f"--model-path={group.model}"
        args = [model, *words_of(group.options), *role]
        main = {
            "image": _runtime(group),
            "command": ["python3", "-m", f"dynamo.{group.engine}"],
            "args": args,
            **probes(group),
        }
        limits = resources(group, "" if "mig" in group.resource else "gpu")
        many = group.servers_per_replica
        if many > 1:
            limits = {side: {name: str(group.gpus // many) for name in held} for side, held in limits.items()}
        service: dict[str, Any] = {
            "componentType": "worker",
            **({"subComponentType": group.role} if group.role else {}),
            "replicas": group.replicas,
            "resources": limits,
            **({"multinode": {"nodeCount": many}} if many > 1 else {}),
            "extraPodSpec": {"nodeSelector": node_selector(group), "mainContainer": main},
        }
        if kept := annotations(group, named=group.name, without_autoscaler=True):
            service["annotations"] = kept
        services[group.name] = service
    spec = {"backendFramework": groups[0].engine, "services": services}
    name = groups[0].name if len(groups) == 1 else f"{groups[0].name}-graph"
    return _documents(head, [_object("nvidia.com/v1alpha1", "DynamoGraphDeployment", name, spec)])


def keda(groups: Sequence[ServerGroup], head: Sequence[str]) -> str:
    """Return a ScaledObject for each Deployment that an HPA or KEDA scales in the simulation."""
    documents = []
    for group in groups:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": group.name}
        if scaler := scaler_of(group, target, keda=True):
            documents.append(scaler)
    if not documents:
        raise NoDeployment(Message("no pool has autoscaling with policy hpa or keda: KEDA has nothing to scale"))
    return _documents(head, documents)


FORMATS: dict[str, tuple[str, Callable[[Sequence[ServerGroup], Sequence[str]], str]]] = {
    "vllm": ("-serve.sh", vllm),
    "kubernetes": ("-kubernetes.yaml", kubernetes),
    "kserve": ("-kserve.yaml", kserve),
    "llm-d": ("-llm-d.yaml", llm_d),
    "dynamo": ("-dynamo.yaml", dynamo),
    "keda": ("-keda.yaml", keda),
}
"""Tool -> suffix of the file's name, and function that writes the file."""


def _container(group: ServerGroup) -> dict[str, Any]:
    return {
        "name": "server",
        "image": group.image,
        "command": group.program,
        "args": group.arguments,
        "ports": [{"containerPort": PORT}],
        "resources": resources(group),
        **probes(group),
    }


def _workload(group: ServerGroup) -> dict[str, Any]:
    """Return the part of an LLMInferenceService that prefill and decode servers share."""
    if group.engine != "vllm":
        raise NoDeployment(
            Message("KServe's LLMInferenceService starts vLLM, and the fleet runs {engine}", group.engine)
        )
    options, parallel = _parallel(group)
    main: dict[str, Any] = {"name": "main", "image": group.image, "resources": resources(group), **probes(group)}
    if options:
        main["env"] = [{"name": MORE_ARGUMENTS, "value": shlex.join(options)}]
    return {
        "replicas": group.replicas,
        **({"parallelism": parallel} if parallel else {}),
        "template": {"nodeSelector": node_selector(group), "containers": [main]},
    }


def _parallel(group: ServerGroup) -> tuple[list[str], dict[str, Any]]:
    """Return the options without parallelism, and the parallelism in the terms of KServe and llm-d."""
    keys = {name: VLLM[name].key for name in group.options}
    words = {ours: theirs for theirs, ours in PARALLELISM.items()}
    parallel = {
        words[key]: int(group.options[name]) if group.options[name] else True
        for name, key in keys.items()
        if key in words
    }
    left = {name: value for name, value in group.options.items() if keys[name] not in words}
    return words_of(left), parallel


def _hub(group: ServerGroup) -> dict[str, str]:
    uri = f"hf://{group.model}" if HUB.fullmatch(group.model) else f"pvc://models/{group.model.lstrip('/')}"
    return {"uri": uri, "name": group.model}


def _runtime(group: ServerGroup) -> str:
    return f"nvcr.io/nvidia/ai-dynamo/{group.engine}-runtime:latest"


def _add_role(group: ServerGroup) -> None:
    """Add the option that sets the role of a server that is started by a command."""
    if not group.role:
        return
    if group.engine == "vllm":
        config = f'{{"kv_connector":"NixlConnector","kv_role":"{ROLES[group.role]}"}}'
        group.options = group.options | {"kv-transfer-config": config}
    else:
        group.options = group.options | {"disaggregation-mode": group.role}


def _object(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _documents(head: Sequence[str], documents: Sequence[dict[str, Any]]) -> str:
    return "\n".join(_comment(head)) + "\n" + "---\n".join(dump(one) for one in documents)


def _comment(head: Sequence[str]) -> Iterator[str]:
    for sentence in head:
        yield from (f"# {line}" for line in wrap(sentence, WIDTH, break_on_hyphens=False, subsequent_indent="  "))
