"""The figures of a claim, each kind with the function that finds it and with what is known of its noise.

A new kind is a function here with `@finds`, and a class in sim/scenario/claim.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, hypot
from pathlib import Path
from typing import Any, TypeVar

from sim.catalogue.catalog import Catalog
from sim.catalogue.model import matrices
from sim.catalogue.quantization import native_quantization, padded
from sim.catalogue.value import Value
from sim.claims.formulas import FORMULAS, formula_wrong
from sim.jobs.load import load_job
from sim.memory.weights import ReplicaLayout, stage_weight_bytes
from sim.scenario.claim import (
    CapacityFigure,
    CatalogueFigure,
    CheapestFigure,
    FormulaFigure,
    LedgerFigure,
    MemoryFigure,
    SummaryFigure,
    WeightsFigure,
)
from sim.scenario.reading.errors import did_you_mean
from sim.scenario.reading.layers import options
from sim.scenario.reading.load import has_job, load, load_for_size
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, cases
from sim.spec import Spec
from sim.study.at_capacity import at_capacity
from sim.study.capacity import capacities, why_no_capacity
from sim.study.execution.cases import do_all, jobs_of, limits
from sim.study.execution.cores import ProcessPool
from sim.study.execution.store import StoredCase
from sim.study.load_axis import LoadAxis
from sim.study.metrics.statistics import LEAST_FOR_INTERVAL, half_width, mean
from sim.study.points import summarize
from sim.study.size.bounds import why_no_size
from sim.study.size.search import search
from sim.training.outcome import job_outcomes, summary
from sim.training.schema import JobScenario
from sim.units import GB, HOURS_PER_MONTH


class NoFigure(ValueError):
    """A figure that cannot be computed; the message says why."""


@dataclass(frozen=True, slots=True)
class ClaimFigure:
    """A number; with replications also half of its 95 % interval."""

    value: float
    half_width: float | None = None
    """None where chance has no part in it, or where there is one replication."""
    samples: tuple[float, ...] = ()
    """Of each replication, in order, so that figures of the same seeds can be paired; empty where that is not known."""

    @property
    def ends(self) -> tuple[float, float]:
        """Lowest and highest value of the interval."""
        half = self.half_width or 0.0
        return self.value - half, self.value + half


def combined(function: Callable[..., float], inputs: Sequence[ClaimFigure]) -> ClaimFigure:
    """*function* of the values of *inputs*.

    Where all inputs with noise have as many samples, the interval is that of the function over paired replications;
    else each input's half-width goes through the function by itself, and the effects add up as independent ones do.
    """
    values = [one.value for one in inputs]
    result = float(function(*values))
    noisy = [one for one in inputs if one.half_width is not None]
    counts = {len(one.samples) for one in noisy}
    if not noisy:
        return ClaimFigure(result)
    if len(counts) == 1 and counts != {0}:
        [count] = counts
        columns = [one.samples if one.half_width is not None else (one.value,) * count for one in inputs]
        samples = tuple(float(function(*column)) for column in zip(*columns, strict=True))
        return ClaimFigure(result, half_width(samples), samples)
    effects = []
    for place, one in enumerate(inputs):
        if one.half_width is not None:
            moved = [*values[:place], one.value + one.half_width, *values[place + 1 :]]
            effects.append(float(function(*moved)) - result)
    return ClaimFigure(result, hypot(*effects))


@dataclass(slots=True)
class ClaimContext:
    """One claim's file and what its figures share."""

    path: Path
    catalog: Catalog
    out: Path
    """Simulated cases are kept below; figures of the same simulation share it."""
    cores: ProcessPool
    figures: dict[str, ClaimFigure] = field(default_factory=dict)
    """Those that are known already."""
    answers: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Searches that several figures ask about."""

    def scenario(self, values: Mapping[str, Any], with_fleets: bool = True) -> Scenario:
        """The scenario with *values* in place of its own. Raises ScenarioErrors."""
        key = ("scenario", repr(values), with_fleets)
        if key not in self.answers:
            read = load if with_fleets else load_for_size
            self.answers[key] = read(self.path, options(values), catalog=self.catalog)
        found: Scenario = self.answers[key]
        return found

    @property
    def has_job(self) -> bool:
        """Whether the claim is about a training job."""
        if ("has_job",) not in self.answers:
            self.answers["has_job",] = has_job(self.path)
        return bool(self.answers["has_job",])

    def cases(self, fleet: str, values: Mapping[str, Any]) -> tuple[Scenario, list[Case]]:
        """The scenario with *values*, and the cases of *fleet*: one point, all replications. Raises NoFigure."""
        scenario = self.scenario(values)
        found = [case for case in cases(scenario) if case.fleet == fleet]
        points = list({repr(case.overrides): case.axes for case in found}.values())
        if len(points) > 1:
            raise NoFigure(f"{fleet}: {len(points)} points of the sweep; set {', '.join(points[0])}")
        return scenario, found


Kind = TypeVar("Kind", bound=Spec)
_FINDERS: dict[type[Spec], Callable[[Any, ClaimContext], ClaimFigure]] = {}


def finds(
    kind: type[Kind],
) -> Callable[[Callable[[Kind, ClaimContext], ClaimFigure]], Callable[[Kind, ClaimContext], ClaimFigure]]:
    """Registers a function of (specification, claim asked about) for figures of *kind*."""

    def register(function: Callable[[Kind, ClaimContext], ClaimFigure]) -> Callable[[Kind, ClaimContext], ClaimFigure]:
        _FINDERS[kind] = function
        return function

    return register


def find(spec: Spec, asked: ClaimContext) -> ClaimFigure:
    """The figure that *spec* describes. Raises NoFigure, ScenarioErrors, UnknownId."""
    return _FINDERS[type(spec)](spec, asked)


@finds(FormulaFigure)
def arithmetic(spec: FormulaFigure, asked: ClaimContext) -> ClaimFigure:
    """The formula's value, with an interval where a figure in it has one."""
    if wrong := formula_wrong(spec):
        raise NoFigure(wrong)
    function = FORMULAS[spec.formula]
    if isinstance(spec.of, dict):
        names, inputs = list(spec.of), _inputs(spec.of.values(), asked)
        return combined(lambda *values: function(**dict(zip(names, values, strict=True))), inputs)
    return combined(function, _inputs(spec.of, asked))


def _inputs(given: Iterable[float | str], asked: ClaimContext) -> list[ClaimFigure]:
    return [asked.figures[one] if isinstance(one, str) else ClaimFigure(one) for one in given]


@finds(CatalogueFigure)
def catalogue(spec: CatalogueFigure, asked: ClaimContext) -> ClaimFigure:
    """The value, in the unit that is asked for."""
    kind, _, name = spec.of.partition(" ")
    catalog = asked.catalog
    look = {
        "gpu": catalog.gpu,
        "server": catalog.server,
        "link": catalog.link,
        "model": catalog.any_model,
        "offer": catalog.offer,
    }
    found: Any = look[kind](name)
    for step in spec.value.split("."):
        found = _inside(found, step, spec)
    if isinstance(found, Value):
        found = found.value
    if found is None:
        if spec.absent is None:
            raise NoFigure(f"the catalogue has no {spec.value} of {spec.of}")
        return ClaimFigure(spec.absent)
    if not isinstance(found, int | float):
        raise NoFigure(f"{spec.value} of {spec.of} is no number")
    return ClaimFigure(found / spec.per)


def _inside(found: Any, step: str, spec: CatalogueFigure) -> Any:
    if isinstance(found, dict) and step in found:
        return found[step]
    fields = getattr(type(found), "model_fields", {})
    if step not in fields:
        raise NoFigure(f"{spec.of} has no {step!r}{did_you_mean(step, fields)}")
    return getattr(found, step)


@finds(WeightsFigure)
def weights(spec: WeightsFigure, asked: ClaimContext) -> ClaimFigure:
    """On one GPU that holds them all: scales, embeddings and what stays at 16 bit included."""
    model = asked.catalog.model(spec.model)
    formats = asked.catalog.quantization
    quantization = native_quantization(formats(spec.quantization), model, formats)
    stored = padded(quantization, model)
    return ClaimFigure(stage_weight_bytes(stored, quantization, matrices(stored), ReplicaLayout(), 0) / spec.per)


FITS = "fits"
"""In place of a column: 1 where the job can be done, else 0."""


def of_job(fleet: str, metric: str, asked: ClaimContext, values: Mapping[str, Any]) -> ClaimFigure:
    """One column for one fleet. Nothing is random, so it has no interval. Raises NoFigure."""
    key = ("job", repr(values))
    if key not in asked.answers:
        scenario = load_job(asked.path, options(values), catalog=asked.catalog)
        if not isinstance(scenario, JobScenario):
            raise NoFigure("a queue of jobs has no figures here, a single job does")
        asked.answers[key] = summary(job_outcomes(scenario, asked.catalog))
    found = [row for row in asked.answers[key] if row.fleet == fleet]
    if len(found) != 1:
        raise NoFigure(f"{fleet}: {len(found)} points of the sweep; set one")
    [row] = found
    if metric == FITS:
        return ClaimFigure(float(row.ok))
    if metric not in row.cells:
        raise NoFigure(f"summary.csv of a job has no column {metric!r}{did_you_mean(metric, row.cells)}")
    value = row.cells[metric]
    if not isinstance(value, int | float):
        raise NoFigure(f"{fleet}: {row.cells['reason'] or f'{metric} is empty'}")
    return ClaimFigure(float(value))


JOB_COLUMNS = {"fits": FITS, "reserved_gb": "peak_memory_gb"}


@finds(MemoryFigure)
def memory(spec: MemoryFigure, asked: ClaimContext) -> ClaimFigure:
    """Of the fleet's first pool."""
    if asked.has_job:
        return of_job(spec.fleet, JOB_COLUMNS.get(spec.value, spec.value), asked, spec.set)
    scenario, cases = asked.cases(spec.fleet, spec.set)
    plan = resolve(scenario, cases[0], asked.catalog)
    pool = plan.pools[0]
    if spec.value == "fits":
        return ClaimFigure(float(not plan.infeasible))
    if spec.value == "gpus":
        return ClaimFigure(float(pool.gpus_per_replica))
    if plan.infeasible or pool.memory is None:
        raise NoFigure(f"{spec.fleet}: {plan.infeasible or 'no memory is computed'}")
    held = pool.memory
    if spec.value == "kv_tokens":
        return ClaimFigure(held.kv_tokens)
    parts = held.weights_bytes + held.activations_bytes + held.context_bytes + held.graphs_bytes + held.comms_bytes
    return ClaimFigure((parts + held.kv_bytes) * held.gpus / GB)


def simulated(fleet: str, values: Mapping[str, Any], asked: ClaimContext) -> tuple[Scenario, list[StoredCase]]:
    """The scenario with *values* and the finished cases of *fleet*, one a replication. Raises NoFigure."""
    scenario, cases = asked.cases(fleet, values)
    jobs = jobs_of(scenario, cases, asked.catalog, asked.out)
    do_all(asked.cores, jobs, lambda *_: None)
    return scenario, [job.stored() for job in jobs]


@finds(SummaryFigure)
def run(spec: SummaryFigure, asked: ClaimContext) -> ClaimFigure:
    """Over the scenario's replications; the same cases are simulated once for all figures."""
    if asked.has_job:
        return of_job(spec.fleet, spec.metric, asked, spec.set)
    scenario, stored = simulated(spec.fleet, spec.set, asked)
    level = limits(scenario)
    [point] = summarize(stored, (), level)
    if not point.ok:
        raise NoFigure(f"{spec.fleet}: {point.row['reason']}")
    if spec.metric not in point.row:
        raise NoFigure(f"summary.csv has no column {spec.metric!r}{did_you_mean(spec.metric, point.row)}")
    value = point.number(spec.metric)
    if value is None:
        raise NoFigure(f"{spec.fleet}: {spec.metric} is empty")
    each = [summarize([case], (), level)[0].number(spec.metric) for case in stored]
    samples = tuple(one for one in each if one is not None)
    half = point.number(f"{spec.metric}_ci95") if len(samples) == len(stored) > 1 else None
    return ClaimFigure(value, half, samples if half is not None and len(samples) >= LEAST_FOR_INTERVAL else ())


@finds(LedgerFigure)
def ledger(spec: LedgerFigure, asked: ClaimContext) -> ClaimFigure:
    """USD per hour of the window, mean over replications."""
    samples = []
    for case in simulated(spec.fleet, spec.set, asked)[1]:
        if case.status != "ok":
            raise NoFigure(f"{spec.fleet}: {case.reason}")
        rows = case.costs().to_pylist()
        known = dict.fromkeys(row["component"] for row in rows)
        if spec.component not in known:
            raise NoFigure(f"the bill has no component {spec.component!r}{did_you_mean(spec.component, known)}")
        usd = fsum(row["amount_usd"] for row in rows if row["component"] == spec.component)
        samples.append(usd / case.metrics["window_h"])
    half = half_width(samples)
    return ClaimFigure(mean(samples), half, tuple(samples) if half is not None else ())


@finds(CapacityFigure)
def capacity(spec: CapacityFigure, asked: ClaimContext) -> ClaimFigure:
    """Over the scenario's replications, one search each."""
    scenario = asked.scenario(spec.set)
    if refusal := why_no_capacity(scenario):
        raise NoFigure(refusal)
    alone = scenario.model_copy(
        update={"sweep": None, "fleets": tuple(fleet for fleet in scenario.fleets if fleet.name == spec.fleet)}
    )
    key = ("capacity", spec.fleet, repr(spec.set), spec.relative)
    if key not in asked.answers:
        [asked.answers[key]] = capacities(alone, asked.catalog, asked.out, asked.cores, spec.relative)
    found, axis = asked.answers[key], LoadAxis.of(alone)
    if found.reason:
        raise NoFigure(f"{spec.fleet}: {found.reason}")
    if spec.metric == "load":
        samples = tuple(one.capacity for one in found.found)
        return ClaimFigure(found.mean, found.half_width, samples if found.half_width is not None else ())
    row = at_capacity(found, alone.slo).row(axis)
    if row.get(spec.metric) is None:
        raise NoFigure(f"capacity.csv has no {spec.metric!r}{did_you_mean(spec.metric, row)}")
    return ClaimFigure(float(row[spec.metric]), row.get(f"{spec.metric}_ci95"))


@finds(CheapestFigure)
def cheapest(spec: CheapestFigure, asked: ClaimContext) -> ClaimFigure:
    """One search for all figures that ask about the same fleets."""
    key = ("size", repr(spec.set))
    if key not in asked.answers:
        scenario = asked.scenario(spec.set, with_fleets=False)
        if refusal := why_no_size(scenario):
            raise NoFigure(refusal)
        asked.answers[key] = search(scenario, asked.catalog, asked.out, asked.cores)
    met = [one for one in asked.answers[key].tried if one.status == "meets" and spec.gpu in (None, one.gpu)]
    if not met:
        text = f"no fleet of {spec.gpu or 'any GPU'} that was simulated meets the service level"
        raise NoFigure(f"{text}; more are simulated with a larger size.front_up_to")
    best = min(met, key=lambda one: one.usd_per_h or 0.0)
    if spec.value == "gpus":
        return ClaimFigure(best.gpus)
    return ClaimFigure((best.usd_per_h or 0.0) * HOURS_PER_MONTH)
