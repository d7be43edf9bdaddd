"""Parts of Kubernetes manifests: containers, probes timed by the cold start, node selectors, autoscalers."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from sim.answers.deployments.servers import ServerGroup
from sim.answers.from_files.autoscalers import GAUGES
from sim.answers.from_files.server_command import OWN
from sim.autoscaling.kubernetes import Hpa, Keda, Rules
from sim.yamlio import dump_line

PORT = 8000
PERIOD_S = 10
SLACK = 2
"""Ratio of the longest start that the probe allows to the computed one: real starts differ by up to this factor."""
UNKNOWN_START_S = 900
"""Longest start that the probe allows where no start is computed [s]."""
SCALED = ("hpa", "keda")
"""Autoscaling policies that Kubernetes can run: HPA and KEDA."""


def resources(group: ServerGroup, name: str = "") -> dict[str, Any]:
    """Return requests and limits of a container, with its GPUs under the resource *name*."""
    count = {name or group.resource: str(group.gpus)}
    return {"requests": dict(count), "limits": dict(count)}


def probes(group: ServerGroup) -> dict[str, Any]:
    """Return the probes of a server; a start may last SLACK times the computed cold start."""
    longest_s = UNKNOWN_START_S if group.start_s is None else max(60.0, SLACK * group.start_s)
    get = {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": PERIOD_S}
    return {
        "startupProbe": get | {"failureThreshold": ceil(longest_s / PERIOD_S)},
        "readinessProbe": get | {"timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": get | {"timeoutSeconds": 5, "failureThreshold": 6},
    }


def annotations(
    group: ServerGroup,
    part: str = "pool",
    named: str = "",
    without_autoscaler: bool = False,
    more: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Return annotations with the keys that the tool cannot express.

    Parameters
    ----------
    group
        Servers with the keys.
    part
        Name of the annotation with keys of the pool.
    named
        Name of the servers in the file; empty if they have none.
    without_autoscaler
        True if the file has no object for the autoscaler, whose keys are then kept, too.
    more
        Further keys of the pool.

    """
    own = dict(more or {}) | ({"name": group.pool} if group.pool != named else {}) | group.own
    if (keys := scaling_keys(group, without_autoscaler)) is not None:
        own["autoscaling"] = keys
    found = {OWN + part: dump_line(own)} if own else {}
    return found | ({OWN + "fleet": dump_line(group.fleet)} if group.fleet else {})


def scaling_keys(group: ServerGroup, whole: bool) -> dict[str, Any] | None:
    """Return the autoscaler keys that its Kubernetes object cannot express; all with *whole*; None without any."""
    if group.autoscaling is None:
        return None
    keys: dict[str, Any] = group.autoscaling.model_dump(mode="json", exclude_unset=True)
    if whole or group.autoscaling.policy not in SCALED:
        return keys
    beside = ("sync_period_s", "tolerance", "metric_window_s", "scrape_interval_s", "metric_delay_s")
    left = {key: value for key, value in keys.items() if key in beside}
    return left or None


def node_selector(group: ServerGroup) -> dict[str, str]:
    """Return the node selector of the GPU."""
    return {group.label[0]: group.label[1]}


def scaler_of(group: ServerGroup, target: dict[str, str], keda: bool = False) -> dict[str, Any] | None:
    """Return the object that scales *target*: an HPA, or KEDA's ScaledObject; None if the policy has neither."""
    autoscaling = group.autoscaling
    if isinstance(autoscaling, Keda):
        return _scaled_object(group, autoscaling, target)
    if isinstance(autoscaling, Hpa):
        return _scaled_object(group, autoscaling, target) if keda else _hpa(group, autoscaling, target)
    return None


def _hpa(group: ServerGroup, spec: Hpa, target: dict[str, str]) -> dict[str, Any]:
    name, scale = metric_name(group.engine, spec.metric)
    value = {"type": "AverageValue", "averageValue": _quantity(spec.target * scale)}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": group.name},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": spec.min_replicas,
            "maxReplicas": spec.max_replicas,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": name}, "target": value}}],
            "behavior": _behavior(spec),
        },
    }


def _scaled_object(group: ServerGroup, spec: Hpa | Keda, target: dict[str, str]) -> dict[str, Any]:
    metadata: dict[str, str] = {"serverAddress": "http://prometheus.monitoring:9090"}
    trigger: dict[str, Any] = {"type": "prometheus", "metadata": metadata}
    pods = f'{{pod=~"{group.name}-.*"}}'
    own: dict[str, Any] = {"minReplicaCount": spec.min_replicas, "maxReplicaCount": spec.max_replicas}
    if isinstance(spec, Keda):
        names = gauges_of(group.engine, f"{spec.metric}_per_replica")
        metadata["query"] = " + ".join(f"sum({name}{pods})" for name in names)
        metadata["threshold"] = _quantity(spec.target)
        if spec.activation_threshold:
            metadata["activationThreshold"] = _quantity(spec.activation_threshold)
        own |= {"pollingInterval": ceil(spec.polling_interval_s), "cooldownPeriod": ceil(spec.cooldown_period_s)}
    else:
        metadata["query"] = " + ".join(f"avg({name}{pods})" for name in gauges_of(group.engine, spec.metric))
        if spec.metric == "requests_per_s_per_replica":
            metadata["query"] = f"avg(rate({group.engine}:request_success_total{pods}[1m]))"
        metadata["threshold"] = _quantity(spec.target * metric_name(group.engine, spec.metric)[1])
        trigger["metricType"] = "Value"
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": group.name},
        "spec": {
            "scaleTargetRef": target,
            **own,
            "triggers": [trigger],
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(spec)}},
        },
    }


def gauges_of(engine: str, metric: str) -> list[str]:
    """Return the names of the gauges of *engine* whose sum is the scenario's *metric*.

    >>> gauges_of("vllm", "outstanding_per_replica")
    ['vllm:num_requests_running', 'vllm:num_requests_waiting']
    """
    parts = ("running_per_replica", "waiting_per_replica") if metric == "outstanding_per_replica" else (metric,)
    return [metric_name(engine, part)[0] for part in parts]


def metric_name(engine: str, metric: str) -> tuple[str, float]:
    """Return the gauge of *engine* for the scenario's *metric*, and the gauge's value where the metric is 1.

    >>> metric_name("sglang", "kv_used"), metric_name("vllm", "waiting_per_replica")
    (('sglang:token_usage', 1), ('vllm:num_requests_waiting', 1))
    """
    of_sglang = ("num_queue_reqs", "num_running_reqs", "token_usage")
    left_out = of_sglang if engine == "vllm" else ("num_requests_waiting", "num_requests_running")
    left_out = (*left_out, *(("kv_cache_usage_perc", "gpu_cache_usage_perc") if engine == "sglang" else ()))
    end = next(name for name, (gauge, _) in GAUGES.items() if gauge == metric and name not in left_out)
    name = end.upper() if end.startswith("dcgm") else f"{engine}:{end}"
    return name, GAUGES[end][1]


def _behavior(spec: Hpa | Keda) -> dict[str, Any]:
    return {
        "scaleUp": _rules(spec.scale_up, spec.scale_up_stabilization_s),
        "scaleDown": _rules(spec.scale_down, spec.scale_down_stabilization_s),
    }


def _rules(rules: Rules, window_s: float) -> dict[str, Any]:
    return {
        "stabilizationWindowSeconds": ceil(window_s),
        "selectPolicy": rules.select.capitalize(),
        "policies": [
            {"type": one.type.capitalize(), "value": one.value, "periodSeconds": ceil(one.period_s)}
            for one in rules.policies
        ],
    }


def _quantity(value: float) -> str:
    return f"{value:.12g}"
