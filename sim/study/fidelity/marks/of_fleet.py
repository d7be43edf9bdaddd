"""The mark and the interval of a fleet, from the scenario alone or with the load that a simulation showed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.engine import family_of
from sim.catalogue.entries.model import params_total
from sim.scenario.experiment import Experiment, Fleet, Pool
from sim.scenario.resolving.bind import BoundPool, bind
from sim.scenario.resolving.hardware.wiring import network_of
from sim.scenario.schema import Scenario
from sim.scenario.sweep import at_point, cases
from sim.steptime import Roofline
from sim.study.fidelity.marks.distance import MARKS, Setting, link_class, mark_of, model_kind
from sim.study.fidelity.marks.interval import METRICS, Worth, read_intervals
from sim.study.fidelity.marks.measured import read_index
from sim.study.fidelity.marks.own import calibrated
from sim.study.fleets.run.point import Point
from sim.study.metrics.expected import mean_tokens

BILLION = 1e9
ON_CHIP = "system on chip"
Load = tuple[float | None, float | None]
"""(sequences in flight on a replica, mean prompt [tokens]); None: not known."""
UNKNOWN: Load = (None, None)


def fleet_worth(scenario: Experiment, fleet: Fleet, catalog: Catalog, load: Load = UNKNOWN) -> Worth | None:
    """What predictions for *fleet* are worth: those of the pool that is farthest from what was measured.

    None where no pool's step time is computed: it is given, or the pools serve networks that answer in one pass.
    """
    settings = [one for pool in fleet.pools if (one := setting_of(scenario, fleet, pool, catalog)) is not None]
    prompt = load[1] or (_usual_prompt(scenario) if any(one.own for one in settings) else None)
    return worst(worth_of(replace(one, sequences=load[0], prompt=prompt), catalog) for one in settings)


def _usual_prompt(scenario: Experiment) -> float | None:
    """Mean tokens of a prompt before anything is simulated; None where nobody knows."""
    try:
        return mean_tokens(scenario)[0] or None
    except ValueError:
        return None


def worth_of(setting: Setting, catalog: Catalog) -> Worth:
    """Mark, reasons and factors of one setting."""
    mark, why = mark_of(setting, read_index(catalog.root / "fidelity" / "measured.csv"))
    intervals = read_intervals(catalog.root / "fidelity" / "intervals.yaml")
    own = intervals.calibrated if setting.measured_by_its_owner else {}
    found = {metric: own.get(metric) or intervals.of(metric, mark) for metric in METRICS}
    speed = found["throughput"]
    factors = {metric: (one.low, one.high) for metric, one in found.items() if one is not None}
    return Worth(mark, why, factors, speed.common_sd if speed is not None else 0.0)


def worst(worths: Iterable[Worth | None]) -> Worth | None:
    """The one that is farthest from what was measured; the first of several. None where there is none."""
    return max((one for one in worths if one is not None), key=lambda one: MARKS.index(one.mark), default=None)


def point_worths(scenario: Scenario, points: Sequence[Point], catalog: Catalog) -> list[Worth | None]:
    """What the predictions at each of *points* of the scenario's sweep are worth, under the load that it had there.

    Fleets are looked up as the scenario has them at the point, so that a sweep of GPUs or layouts is marked rightly.
    None where a point is not of the scenario's sweep, did not run, or has a step time that is not computed.
    """
    asked = _askable(scenario, catalog)
    found: list[Worth | None] = []
    for point in points:
        ask = asked.get((point.fleet, _axes_key(point.axes)))
        found.append(ask(_load_of(point.row)) if ask is not None and point.ok else None)
    return found


def _askable(scenario: Scenario, catalog: Catalog) -> dict[tuple[str, str], Callable[[Load], Worth | None]]:
    """(fleet, its axes) -> what answers for the fleet there under a load."""
    found: dict[tuple[str, str], Callable[[Load], Worth | None]] = {}
    scenarios: dict[str, Scenario] = {}
    places = {fleet.name: place for place, fleet in enumerate(scenario.fleets)}
    for case in cases(scenario):
        key = case.fleet, _axes_key(case.axes)
        if key not in found:
            point = repr(case.overrides)
            if point not in scenarios:
                scenarios[point] = at_point(scenario, case.overrides)
            at = scenarios[point]
            found[key] = partial(fleet_worth, at, at.fleets[places[case.fleet]], catalog)
    return found


def _axes_key(axes: Mapping[str, Any]) -> str:
    """What tells points of a sweep apart."""
    return repr([axes[name] for name in sorted(axes)])


def _load_of(row: Mapping[str, Any]) -> Load:
    """The load that a row of summary.csv shows."""
    requests, tokens, answers = (row.get(n) for n in ("requests_per_s", "total_tokens_per_s", "output_tokens_per_s"))
    prompt = (tokens - answers) / requests if requests and tokens is not None and answers is not None else None
    sequences = row.get("batch_mean")
    return sequences or None, prompt or None


def setting_of(scenario: Experiment, fleet: Fleet, pool: Pool, catalog: Catalog) -> Setting | None:
    """*pool* in the terms of the index; None where its step time is not computed from GPU and model."""
    bound = bind(scenario, fleet, pool, catalog)
    gpu, model, layout = bound.gpu, bound.model, bound.layout
    if gpu is None or model is None or bound.kernel is None or not isinstance(bound.steptime, Roofline):
        return None
    return Setting(
        gpu=gpu.id,
        architecture=gpu.architecture,
        family=model.family or model.id,
        kind=model_kind(model),
        params_billion=params_total(model) / BILLION,
        kernel=bound.kernel.id,
        engine=family_of(bound.engine.id),
        link=link_class(bound.link, layout.gpus),
        tp=layout.tensor_parallel_size,
        pp=layout.pipeline_parallel_size,
        dp=layout.data_parallel_size,
        beyond=tuple(_beyond(bound, catalog)),
        calibrated=bound.calibration is not None,
        own=calibrated(bound),
    )


def _beyond(bound: BoundPool, catalog: Catalog) -> Sequence[str]:
    """What the pool has that no measurement of the fit has."""
    has = {
        "no measurement of the fit has a GPU that shares its memory with the CPU": bound.gpu is not None
        and bound.gpu.form_factor == ON_CHIP,
        "replicas over several servers are in no measurement of the fit": network_of(bound, catalog),
        "speculative decoding is in no measurement of the fit": getattr(bound.batching, "speculative", None),
        "weights in host memory are in no measurement of the fit": bound.offload,
        "MIG slices are in no measurement of the fit": bound.slicing,
        "KV tiers are in no measurement of the fit": bound.spec.kv_tiers,
        "LoRA adapters are in no measurement of the fit": bound.spec.lora,
        "prompts and answers on different replicas are in no measurement of the fit": bound.spec.role != "both",
    }
    return [why for why, there in has.items() if there]
