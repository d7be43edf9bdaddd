"""Computation of the figures in a claim, with their confidence intervals.

Each kind of figure has a function with the decorator `finds`. To add a kind, define such a function here and a class
in sim/scenario/claim.py.
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
from sim.message import Message
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
from sim.validation import did_you_mean


class NoFigure(ValueError):
    """Error for a figure that cannot be computed; the message states the reason."""


@dataclass(frozen=True, slots=True)
class ClaimFigure:
    """Value of a figure, with a confidence interval if it is simulated with replications."""

    value: float
    half_width: float | None = None
    """Half-width of the 95 % interval; None if the value is not random or has one replication."""
    samples: tuple[float, ...] = ()
    """Values per replication, in order, to pair figures with the same seeds; empty if not known."""

    @property
    def ends(self) -> tuple[float, float]:
        """Lower and upper end of the interval."""
        half = self.half_width or 0.0
        return self.value - half, self.value + half


def combined(function: Callable[..., float], inputs: Sequence[ClaimFigure]) -> ClaimFigure:
    """Apply *function* to the values of *inputs*.

    Notes
    -----
    If all random inputs have the same number of samples, the interval is that of the function over paired replications.
    Otherwise each input is shifted by its half-width separately, and the effects are added in quadrature, as
    independent errors.

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
            shifted = [*values[:place], one.value + one.half_width, *values[place + 1 :]]
            effects.append(float(function(*shifted)) - result)
    return ClaimFigure(result, hypot(*effects))


@dataclass(slots=True)
class ClaimContext:
    """File of a claim with data that its figures share."""

    path: Path
    catalog: Catalog
    out: Path
    """Folder of the simulated cases, which figures of the same simulation share."""
    cores: ProcessPool
    figures: dict[str, ClaimFigure] = field(default_factory=dict)
    """Figures computed so far, keyed by name."""
    answers: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Cached results that several figures need."""

    def scenario(self, values: Mapping[str, Any], with_fleets: bool = True) -> Scenario:
        """Return the scenario with *values* set. Raises ScenarioErrors."""
        key = ("scenario", repr(values), with_fleets)
        if key not in self.answers:
            read = load if with_fleets else load_for_size
            self.answers[key] = read(self.path, options(values), catalog=self.catalog)
        found: Scenario = self.answers[key]
        return found

    @property
    def has_job(self) -> bool:
        """True if the claim is about a training job."""
        if ("has_job",) not in self.answers:
            self.answers["has_job",] = has_job(self.path)
        return bool(self.answers["has_job",])

    def cases(self, fleet: str, values: Mapping[str, Any]) -> tuple[Scenario, list[Case]]:
        """Return the scenario with *values* set, and the replications of *fleet* at its only point. Raises NoFigure."""
        scenario = self.scenario(values)
        found = [case for case in cases(scenario) if case.fleet == fleet]
        points = list({repr(case.overrides): case.axes for case in found}.values())
        if len(points) > 1:
            raise NoFigure(
                Message("{fleet}: {count} points of the sweep; set {axes}", fleet, len(points), ", ".join(points[0]))
            )
        return scenario, found


Kind = TypeVar("Kind", bound=Spec)
_FINDERS: dict[type[Spec], Callable[[Any, ClaimContext], ClaimFigure]] = {}


def finds(
    kind: type[Kind],
) -> Callable[[Callable[[Kind, ClaimContext], ClaimFigure]], Callable[[Kind, ClaimContext], ClaimFigure]]:
    """Return a decorator that registers a function (specification, context) for figures of *kind*."""

    def register(function: Callable[[Kind, ClaimContext], ClaimFigure]) -> Callable[[Kind, ClaimContext], ClaimFigure]:
        _FINDERS[kind] = function
        return function

    return register


def find(spec: Spec, context: ClaimContext) -> ClaimFigure:
    """Compute the figure that *spec* describes. Raises NoFigure, ScenarioErrors, UnknownId."""
    return _FINDERS[type(spec)](spec, context)


@finds(FormulaFigure)
def arithmetic(spec: FormulaFigure, context: ClaimContext) -> ClaimFigure:
    """Evaluate a formula, with an interval if one of its figures has one."""
    if wrong := formula_wrong(spec):
        raise NoFigure(wrong)
    function = FORMULAS[spec.formula]
    if isinstance(spec.of, dict):
        names, inputs = list(spec.of), _inputs(spec.of.values(), context)
        return combined(lambda *values: function(**dict(zip(names, values, strict=True))), inputs)
    return combined(function, _inputs(spec.of, context))


def _inputs(given: Iterable[float | str], context: ClaimContext) -> list[ClaimFigure]:
    return [context.figures[one] if isinstance(one, str) else ClaimFigure(one) for one in given]


@finds(CatalogueFigure)
def catalogue(spec: CatalogueFigure, context: ClaimContext) -> ClaimFigure:
    """Return a value of the catalogue in the unit of *spec*."""
    kind, _, name = spec.of.partition(" ")
    catalog = context.catalog
    look = {
        "gpu": catalog.gpu,
        "server": catalog.server,
        "link": catalog.link,
        "model": catalog.any_model,
        "offer": catalog.offer,
    }
    found: Any = look[kind](name)
    for step in spec.value.split("."):
        found = _entry_field(found, step, spec)
    if isinstance(found, Value):
        found = found.value
    if found is None:
        if spec.absent is None:
            raise NoFigure(Message("the catalogue has no {value} of {item}", spec.value, spec.of))
        return ClaimFigure(spec.absent)
    if not isinstance(found, int | float):
        raise NoFigure(Message("{value} of {item} is not a number", spec.value, spec.of))
    return ClaimFigure(found / spec.per)


def _entry_field(found: Any, step: str, spec: CatalogueFigure) -> Any:
    if isinstance(found, dict) and step in found:
        return found[step]
    fields = getattr(type(found), "model_fields", {})
    if step not in fields:
        raise NoFigure(Message("{item} has no {key!r}{hint}", spec.of, step, did_you_mean(step, fields)))
    return getattr(found, step)


@finds(WeightsFigure)
def weights(spec: WeightsFigure, context: ClaimContext) -> ClaimFigure:
    """Return the size of a model's weights on one GPU, with scales, embeddings and 16-bit tensors."""
    model = context.catalog.model(spec.model)
    formats = context.catalog.quantization
    quantization = native_quantization(formats(spec.quantization), model, formats)
    stored = padded(quantization, model)
    return ClaimFigure(stage_weight_bytes(stored, quantization, matrices(stored), ReplicaLayout()) / spec.per)


FITS = "fits"
"""Name of the metric that is 1 if the job is feasible, else 0."""


def job_figure(fleet: str, metric: str, context: ClaimContext, values: Mapping[str, Any]) -> ClaimFigure:
    """Return a column of a job's summary.csv for *fleet*; it is not random. Raises NoFigure."""
    key = ("job", repr(values))
    if key not in context.answers:
        scenario = load_job(context.path, options(values), catalog=context.catalog)
        if not isinstance(scenario, JobScenario):
            raise NoFigure("a queue of jobs has no figures here; a single job has")
        context.answers[key] = summary(job_outcomes(scenario, context.catalog))
    found = [row for row in context.answers[key] if row.fleet == fleet]
    if len(found) != 1:
        raise NoFigure(Message("{fleet}: {count} points of the sweep; set one", fleet, len(found)))
    [row] = found
    if metric == FITS:
        return ClaimFigure(float(row.ok))
    if metric not in row.cells:
        raise NoFigure(
            Message("summary.csv of a job has no column {metric!r}{hint}", metric, did_you_mean(metric, row.cells))
        )
    value = row.cells[metric]
    if not isinstance(value, int | float):
        raise NoFigure(Message("{fleet}: {reason}", fleet, row.cells["reason"] or Message("{metric} is empty", metric)))
    return ClaimFigure(float(value))


JOB_COLUMNS = {"fits": FITS, "reserved_gb": "peak_memory_gb"}


@finds(MemoryFigure)
def memory(spec: MemoryFigure, context: ClaimContext) -> ClaimFigure:
    """Return a memory value of the fleet's first pool."""
    if context.has_job:
        return job_figure(spec.fleet, JOB_COLUMNS.get(spec.value, spec.value), context, spec.set)
    scenario, cases = context.cases(spec.fleet, spec.set)
    plan = resolve(scenario, cases[0], context.catalog)
    pool = plan.pools[0]
    if spec.value == "fits":
        return ClaimFigure(float(not plan.infeasible))
    if spec.value == "gpus":
        return ClaimFigure(float(pool.gpus_per_replica))
    if plan.infeasible or pool.memory is None:
        raise NoFigure(f"{spec.fleet}: {plan.infeasible or 'no memory is computed'}")
    usage = pool.memory
    if spec.value == "kv_tokens":
        return ClaimFigure(usage.kv_tokens)
    parts = usage.weights_bytes + usage.activations_bytes + usage.context_bytes + usage.graphs_bytes + usage.comms_bytes
    return ClaimFigure((parts + usage.kv_bytes) * usage.gpus / GB)


def simulated(fleet: str, values: Mapping[str, Any], context: ClaimContext) -> tuple[Scenario, list[StoredCase]]:
    """Return the scenario with *values* set, and the finished replications of *fleet*. Raises NoFigure."""
    scenario, cases = context.cases(fleet, values)
    jobs = jobs_of(scenario, cases, context.catalog, context.out)
    do_all(context.cores, jobs, lambda *_: None)
    return scenario, [job.stored() for job in jobs]


@finds(SummaryFigure)
def run(spec: SummaryFigure, context: ClaimContext) -> ClaimFigure:
    """Return a column of summary.csv over the scenario's replications; figures share the simulated cases."""
    if context.has_job:
        return job_figure(spec.fleet, spec.metric, context, spec.set)
    scenario, stored = simulated(spec.fleet, spec.set, context)
    level = limits(scenario)
    [point] = summarize(stored, (), level)
    if not point.ok:
        raise NoFigure(f"{spec.fleet}: {point.row['reason']}")
    if spec.metric not in point.row:
        raise NoFigure(
            Message("summary.csv has no column {metric!r}{hint}", spec.metric, did_you_mean(spec.metric, point.row))
        )
    value = point.number(spec.metric)
    if value is None:
        raise NoFigure(Message("{fleet}: {metric} is empty", spec.fleet, spec.metric))
    each = [summarize([case], (), level)[0].number(spec.metric) for case in stored]
    samples = tuple(one for one in each if one is not None)
    half = point.number(f"{spec.metric}_ci95") if len(samples) == len(stored) > 1 else None
    return ClaimFigure(value, half, samples if half is not None and len(samples) >= LEAST_FOR_INTERVAL else ())


@finds(LedgerFigure)
def ledger(spec: LedgerFigure, context: ClaimContext) -> ClaimFigure:
    """Return the cost of a component, as the mean over replications [USD/h of the window]."""
    samples = []
    for case in simulated(spec.fleet, spec.set, context)[1]:
        if case.status != "ok":
            raise NoFigure(f"{spec.fleet}: {case.reason}")
        rows = case.costs().to_pylist()
        known = dict.fromkeys(row["component"] for row in rows)
        if spec.component not in known:
            raise NoFigure(
                Message(
                    "the bill has no component {component!r}{hint}", spec.component, did_you_mean(spec.component, known)
                )
            )
        usd = fsum(row["amount_usd"] for row in rows if row["component"] == spec.component)
        samples.append(usd / case.metrics["window_h"])
    half = half_width(samples)
    return ClaimFigure(mean(samples), half, tuple(samples) if half is not None else ())


@finds(CapacityFigure)
def capacity(spec: CapacityFigure, context: ClaimContext) -> ClaimFigure:
    """Return a capacity figure over the scenario's replications, each with its own search."""
    scenario = context.scenario(spec.set)
    if refusal := why_no_capacity(scenario):
        raise NoFigure(refusal)
    alone = scenario.model_copy(
        update={"sweep": None, "fleets": tuple(fleet for fleet in scenario.fleets if fleet.name == spec.fleet)}
    )
    key = ("capacity", spec.fleet, repr(spec.set), spec.relative)
    if key not in context.answers:
        [context.answers[key]] = capacities(alone, context.catalog, context.out, context.cores, spec.relative)
    found, axis = context.answers[key], LoadAxis.of(alone)
    if found.reason:
        raise NoFigure(f"{spec.fleet}: {found.reason}")
    if spec.metric == "load":
        samples = tuple(one.capacity for one in found.found)
        return ClaimFigure(found.mean, found.half_width, samples if found.half_width is not None else ())
    row = at_capacity(found, alone.slo).row(axis)
    if row.get(spec.metric) is None:
        raise NoFigure(Message("capacity.csv has no {metric!r}{hint}", spec.metric, did_you_mean(spec.metric, row)))
    return ClaimFigure(float(row[spec.metric]), row.get(f"{spec.metric}_ci95"))


@finds(CheapestFigure)
def cheapest(spec: CheapestFigure, context: ClaimContext) -> ClaimFigure:
    """Return a figure of the cheapest fleet within the service level; figures share the search."""
    key = ("size", repr(spec.set))
    if key not in context.answers:
        scenario = context.scenario(spec.set, with_fleets=False)
        if refusal := why_no_size(scenario):
            raise NoFigure(refusal)
        context.answers[key] = search(scenario, context.catalog, context.out, context.cores)
    met = [one for one in context.answers[key].candidates if one.status == "meets" and spec.gpu in (None, one.gpu)]
    if not met:
        text = Message("no fleet of {gpu} that was simulated meets the service level", spec.gpu or "any GPU")
        raise NoFigure(Message("{text}; a larger size.front_up_to simulates more", text))
    best = min(met, key=lambda one: one.usd_per_h or 0.0)
    if spec.value == "gpus":
        return ClaimFigure(best.gpus)
    return ClaimFigure((best.usd_per_h or 0.0) * HOURS_PER_MONTH)
