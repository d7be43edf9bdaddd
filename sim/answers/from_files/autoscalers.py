"""Autoscalers of manifests as `autoscaling` of a pool: Kubernetes' HPA, KEDA, Knative's KPA and Ray Serve's."""

import re
from typing import Any

from sim.answers.from_files.manifest import Manifest, Place, at
from sim.answers.from_files.manifest_keys import (
    BEHAVIOR,
    HPA,
    RAY_SCALING,
    SCALED_OBJECT,
    SCALING_POLICY,
    SCALING_RULES,
)
from sim.answers.from_files.source import ScalerDraft
from sim.message import Message

GAUGES: dict[str, tuple[str, float]] = {
    "num_requests_outstanding": ("outstanding_per_replica", 1),
    "num_requests_waiting": ("waiting_per_replica", 1),
    "num_requests_running": ("running_per_replica", 1),
    "kv_cache_usage_perc": ("kv_used", 1),
    "gpu_cache_usage_perc": ("kv_used", 1),
    "num_queue_reqs": ("waiting_per_replica", 1),
    "num_running_reqs": ("running_per_replica", 1),
    "token_usage": ("kv_used", 1),
    "dcgm_fi_prof_gr_engine_active": ("gpu_busy", 1),
    "dcgm_fi_dev_gpu_util": ("gpu_busy", 100),
    "requests_per_second": ("requests_per_s_per_replica", 1),
    "request_success_total": ("requests_per_s_per_replica", 1),
}
"""Suffix of a metric's name in vLLM, SGLang or DCGM -> (metric of a scenario, value of the former that equals 1)."""
SIDES = {"scaleUp": "scale_up", "scaleDown": "scale_down"}
SUFFIXES = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9}


def quantity(value: Any) -> float | None:
    """Return a Kubernetes quantity as a number; None if *value* is not one.

    >>> quantity("800m"), quantity("4"), quantity("2k"), quantity("many")
    (0.8, 4.0, 2000.0, None)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mkMG]?)", str(value).strip())
    return None if found is None else round(float(found[1]) * SUFFIXES.get(found[2], 1), 12)


def gauge_named(name: str) -> tuple[str, float] | None:
    """Return the entry of GAUGES for the metric *name*; None if there is none."""
    plain = name.lower().replace(":", "_")
    return next((one for end, one in GAUGES.items() if plain.endswith(end)), None)


def read_hpa(manifest: Manifest, held: dict[Any, Any], place: Place, name: str) -> None:
    """Read a HorizontalPodAutoscaler."""
    place = (*place, "spec")
    spec = held.get("spec")
    manifest.check_keys(spec, place, HPA, "HorizontalPodAutoscaler")
    keys: dict[str, Any] = {"policy": "hpa"}
    _bounds(manifest, spec, place, keys, "minReplicas", "maxReplicas")
    for index, metric in enumerate(at(spec, "metrics") or ()):
        where = (*place, "metrics", index)
        named, target = _metric(metric)
        gauge = gauge_named(named)
        if gauge is None or "metric" in keys:
            manifest.source.not_simulated.append(
                Message(
                    "HorizontalPodAutoscaler {name}: {named} ({gauge})",
                    name,
                    named or "metric",
                    "no gauge of an engine" if gauge is None else "a second metric",
                )
            )
            continue
        value = quantity(next((target[key] for key in ("averageValue", "value") if key in target), None))
        if value is None:
            manifest.fault(where, Message("{named}: target must have averageValue, a number", named))
            continue
        keys |= {"metric": gauge[0], "target": value / gauge[1]}
        if "averageValue" not in target and gauge[0].endswith("_per_replica"):
            manifest.source.not_simulated.append(
                Message("HorizontalPodAutoscaler {name}: a sum over replicas; the target is read as a mean", name)
            )
    if at(spec, "targetCPUUtilizationPercentage") is not None:
        manifest.source.not_simulated.append(
            Message("HorizontalPodAutoscaler {name}: CPU (no gauge of an engine)", name)
        )
    _behavior(manifest, at(spec, "behavior"), (*place, "behavior"), keys)
    _add(manifest, held, place, name, keys, "metric" in keys)


def read_scaled_object(manifest: Manifest, held: dict[Any, Any], place: Place, name: str) -> None:
    """Read KEDA's ScaledObject; of its triggers, the first Prometheus trigger on an engine's gauge is simulated."""
    place = (*place, "spec")
    spec = held.get("spec")
    manifest.check_keys(spec, place, SCALED_OBJECT, "ScaledObject")
    keys: dict[str, Any] = {"policy": "keda", "min_replicas": 0, "max_replicas": 100}
    _bounds(manifest, spec, place, keys, "minReplicaCount", "maxReplicaCount")
    timing: dict[str, str] = {}
    for key, ours in (("pollingInterval", "polling_interval_s"), ("cooldownPeriod", "cooldown_period_s")):
        if (seconds := manifest.count(spec, place, key)) is not None:
            keys[ours] = seconds
            timing[ours] = f"{key}: {ours} {seconds}"
    simulated = False
    for index, trigger in enumerate(at(spec, "triggers") or ()):
        kind, query = str(at(trigger, "type")), str(at(trigger, "metadata", "query") or "")
        names = [one for one in re.findall(r"[A-Za-z_:][\w:]*", query) if gauge_named(one)]
        gauges = [gauge for one in names if (gauge := gauge_named(one))]
        where = (*place, "triggers", index, "metadata")
        threshold = quantity(at(trigger, "metadata", "threshold"))
        if kind != "prometheus" or not gauges or simulated:
            why = "a second trigger" if simulated and gauges else "no gauge of an engine"
            manifest.source.not_simulated.append(
                Message("ScaledObject {name}: trigger {kind} ({why})", name, kind, why)
            )
            continue
        if threshold is None:
            manifest.fault(where, "threshold must be a number")
            continue
        simulated = True
        keys |= _trigger(trigger, {one[0] for one in gauges}, threshold / gauges[0][1])
    if at(spec, "idleReplicaCount") is not None:
        manifest.source.not_simulated.append(Message("ScaledObject {name}: idleReplicaCount", name))
    where = (*place, "advanced", "horizontalPodAutoscalerConfig", "behavior")
    _behavior(manifest, at(spec, "advanced", "horizontalPodAutoscalerConfig", "behavior"), where, keys)
    if keys["policy"] == "hpa":
        for ours, text in timing.items():
            keys.pop(ours)  # the policy becomes an HPA, which has neither key
            option = text.partition(":")[0]
            manifest.source.not_simulated.append(
                Message("{kind} {name}: {option} (its trigger is simulated as an HPA)", held.get("kind"), name, option)
            )
    else:
        manifest.source.read += timing.values()
    _add(manifest, held, place, name, keys, simulated)


def _trigger(trigger: Any, gauges: set[str], target: float) -> dict[str, Any]:
    """Return the keys of a trigger on *gauges*; a trigger that averages over replicas becomes an HPA's metric."""
    if gauges == {"waiting_per_replica", "running_per_replica"}:
        gauges = {"outstanding_per_replica"}
    gauge = sorted(gauges)[0]
    counted = {"waiting_per_replica": "waiting", "outstanding_per_replica": "outstanding"}.get(gauge)
    if counted is None or at(trigger, "metricType") == "Value":
        return {"policy": "hpa", "metric": gauge, "target": target}
    activation = quantity(at(trigger, "metadata", "activationThreshold"))
    found: dict[str, Any] = {"metric": counted, "target": target}
    return found if not activation else found | {"activation_threshold": activation}


def read_knative(manifest: Manifest, pod: dict[Any, Any], place: Place, name: str) -> None:
    """Read the autoscaler of KServe's predictor; equal least and greatest numbers of replicas mean no autoscaler."""
    least, most = manifest.count(pod, place, "minReplicas"), manifest.count(pod, place, "maxReplicas")
    if most is None or most == (1 if least is None else least):
        return
    metric = {"concurrency": "concurrency", "rps": "requests_per_s"}.get(str(pod.get("scaleMetric", "concurrency")))
    target = quantity(pod.get("scaleTarget", 100))
    if metric is None or target is None:
        manifest.source.not_simulated.append(Message("autoscaler of {name} (see autoscaling of a pool)", name))
        return
    keys = {"policy": "kpa", "min_replicas": 1 if least is None else least, "max_replicas": most}
    keys |= {"metric": metric, "target": target}
    manifest.source.read.append(Message("autoscaler of {name}: kpa", name))
    manifest.source.scalers.append(ScalerDraft(manifest.document.path, manifest.document.line(place), name, keys))


def ray_keys(manifest: Manifest, given: Any, place: Place) -> dict[str, Any]:
    """Return `autoscaling` for Ray Serve's `autoscaling_config`; empty where the number of replicas is fixed."""
    known = {
        "min_replicas": "min_replicas",
        "max_replicas": "max_replicas",
        "target_ongoing_requests": "target",
        "upscale_delay_s": "scale_up_stabilization_s",
        "downscale_delay_s": "scale_down_stabilization_s",
        "look_back_period_s": "metric_window_s",
    }
    manifest.check_keys(given, place, " ".join([*known, RAY_SCALING]), "autoscaling_config")
    if not isinstance(given, dict) or given.get("max_replicas", 1) == given.get("min_replicas", 1):
        return {}
    keys: dict[str, Any] = {
        **{"policy": "hpa", "metric": "outstanding_per_replica", "min_replicas": 1, "max_replicas": 1, "target": 2},
        **{"metric_window_s": 30, "scale_up_stabilization_s": 30, "scale_down_stabilization_s": 600},
    }
    for key, ours in known.items():
        value = quantity(given[key]) if key in given else None
        if key in given and value is None:
            manifest.fault((*place, key), Message("{key} must be a number, not {given!r}", key, given[key]))
        elif value is not None:
            keys[ours] = int(value) if ours.endswith("replicas") else value
            manifest.source.read.append(f"{key}: {ours} {value:g}")
    if keys["min_replicas"] == 0:
        manifest.source.not_simulated.append("Ray Serve: scaling to zero (min_replicas 1 is simulated)")
        keys["min_replicas"] = 1
    return keys


def _bounds(manifest: Manifest, spec: Any, place: Place, keys: dict[str, Any], least: str, most: str) -> None:
    for key, ours in ((least, "min_replicas"), (most, "max_replicas")):
        value = manifest.count(spec, place, key)
        if value is not None:
            keys[ours] = value
            manifest.source.read.append(f"{key}: {ours} {value}")
        elif ours == "max_replicas" and ours not in keys and at(spec, key) is None:
            manifest.fault(place, Message("{key} is missing", key))


def _metric(metric: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the target of a metric of an HPA."""
    kind = str(at(metric, "type") or "")
    held = at(metric, kind[:1].lower() + kind[1:]) if kind else None
    name = at(held, "metric", "name") or at(held, "name")
    target = at(held, "target")
    return str(name or kind), target if isinstance(target, dict) else {}


def _behavior(manifest: Manifest, behavior: Any, place: Place, keys: dict[str, Any]) -> None:
    manifest.check_keys(behavior, place, BEHAVIOR)
    for side, ours in SIDES.items():
        rules, where = at(behavior, side), (*place, side)
        manifest.check_keys(rules, where, SCALING_RULES)
        if (window := manifest.count(rules, where, "stabilizationWindowSeconds")) is not None:
            keys[f"{ours}_stabilization_s"] = window
            manifest.source.read.append(
                Message("{side}.stabilizationWindowSeconds: {ours}_stabilization_s {window}", side, ours, window)
            )
        if at(rules, "tolerance") is not None:
            manifest.source.not_simulated.append(f"{side}.tolerance")
        policies = []
        for index, one in enumerate(at(rules, "policies") or ()):
            spot = (*where, "policies", index)
            manifest.check_keys(one, spot, SCALING_POLICY)
            kind = str(at(one, "type")).lower()
            value, period = manifest.count(one, spot, "value"), manifest.count(one, spot, "periodSeconds")
            if kind not in ("pods", "percent") or value is None or period is None:
                manifest.fault(spot, "a policy has type (Pods, Percent), value and periodSeconds")
                continue
            policies.append({"type": kind, "value": value, "period_s": period})
        select = str(at(rules, "selectPolicy") or "Max").lower()
        if select not in ("max", "min", "disabled"):
            manifest.fault((*where, "selectPolicy"), "selectPolicy must be Max, Min or Disabled")
        elif policies:
            keys[ours] = {"policies": policies} | ({} if select == "max" else {"select": select})
            manifest.source.read.append(Message("{side}.policies: {ours}", side, ours))
        elif select != "max":
            keys[ours] = {"policies": [{"type": "percent", "value": 100, "period_s": 15}], "select": select}


def _add(manifest: Manifest, held: dict[Any, Any], place: Place, name: str, keys: dict[str, Any], known: bool) -> None:
    """Add the autoscaler to the source; list it as not simulated unless one of its metrics is *known*."""
    kind, target = str(held.get("kind")), str(at(held, "spec", "scaleTargetRef", "name") or "")
    if not known:
        manifest.source.not_simulated.append(Message("{kind} {name} (the number of replicas is fixed)", kind, name))
        return
    if keys["policy"] == "hpa" and keys.get("min_replicas") == 0:
        manifest.source.not_simulated.append(
            Message("{kind} {name}: scaling to zero (min_replicas 1 is simulated)", kind, name)
        )
        keys["min_replicas"] = 1
    manifest.source.read.append(f"{kind} of {target}: {keys['policy']}, {keys['metric']} {keys['target']:g}")
    manifest.source.scalers.append(ScalerDraft(manifest.document.path, manifest.document.line(place), target, keys))
