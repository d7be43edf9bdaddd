"""Results of a training job on every fleet at every sweep point: meter readings, cost, and columns of summary.csv.

Every column is declared once: name, unit, meaning, and the function that computes it from an outcome.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Generic, TypeVar

from sim.catalogue.catalog import Catalog
from sim.cost.ledger import Ledger
from sim.cost.metering import MeteredWindow
from sim.power import PoolPower
from sim.records import Interval
from sim.scenario.sweep import fleets_at_points
from sim.training.plan import JobPlan, PoolOfJobs, resolve_job
from sim.training.schema import JobScenario
from sim.training.steptime import OptimizerStepTime
from sim.units import GB, JOULES_PER_KWH, NANO_PER_USD, SECONDS_PER_HOUR

CAUSES = {
    "matrix_s": "matrix products",
    "attention_s": "attention",
    "stream_s": "memory traffic of element-wise kernels",
    "tensor_exchange_s": "all-reduces between tensor-parallel ranks",
    "expert_exchange_s": "tokens on their way to experts",
    "stage_exchange_s": "activations between pipeline stages",
    "launch_s": "kernel launches",
    "bubble_s": "the pipeline bubble",
    "data_exchange_s": "gradients and weights between data-parallel ranks",
    "optimizer_s": "the optimizer",
    "constant_s": "fixed time of a step (data, logging, launches)",
}
"""Labels of the causes of step time, keyed by the field of `OptimizerStepTime`."""


def parts(step: OptimizerStepTime) -> dict[str, float]:
    """Return the seconds of *step* by cause, in the order of CAUSES."""
    return {words: float(getattr(step, field)) for field, words in CAUSES.items()}


def limited_by(step: OptimizerStepTime) -> str:
    """Return the cause with the largest part of *step*."""
    found = parts(step)
    return max(found, key=lambda cause: found[cause])


STATE = "training"
"""State of the GPUs in meter readings, from the first step to the last."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """Plan, meter readings and cost of a training job on one fleet at one sweep point."""

    plan: JobPlan
    intervals: tuple[Interval, ...]
    """Meter readings; empty if the job is infeasible."""
    ledger: Ledger | None
    """Cost of the job; None without a `cost`."""


def job_outcomes(scenario: JobScenario, catalog: Catalog) -> list[JobOutcome]:
    """Return the outcomes of every fleet at every sweep point, fleet by fleet."""
    return [
        outcome(resolve_job(here, here.fleets[place], axes, catalog))
        for here, place, axes in fleets_at_points(scenario)
    ]


def outcome(plan: JobPlan) -> JobOutcome:
    """Return the meter readings and the cost of *plan*."""
    if plan.infeasible:
        return JobOutcome(plan, (), None)
    intervals = tuple(_intervals(plan))
    ledger = None if plan.pool.costs is None else Ledger.of(intervals, plan.pool.costs, 0.0, plan.run.makespan.total_s)
    return JobOutcome(plan, intervals, ledger)


def _intervals(plan: JobPlan) -> Iterator[Interval]:
    """Yield the meter readings: at the end of the job, and at every full hour if the site has a clock.

    The times of failures are not known: saves, lost work and restarts are spread evenly over the job.
    """
    start_s, total_s = 0.0, plan.run.makespan.total_s
    while start_s < total_s:
        end_s = total_s if plan.pool.clock is None else min(total_s, plan.pool.clock.next_hour_s(start_s))
        yield _interval(plan, start_s, end_s)
        start_s = end_s


def _interval(plan: JobPlan, start_s: float, end_s: float) -> Interval:
    time, duration_s = plan.run.makespan, end_s - start_s
    part = duration_s / time.total_s
    saving_s, lost_s, waiting_s = part * time.saving_s, part * time.lost_s, part * time.restarting_s
    found = Interval(
        pool=plan.pool.name,
        server=plan.pool.server,
        replica=0,
        state=STATE,
        start_s=start_s,
        end_s=end_s,
        gpu_s=plan.pool.gpus * duration_s,
        busy_s=max(0.0, duration_s - waiting_s),
        prefill_s=saving_s,
        recompute_s=lost_s,
    )
    if plan.pool.power is not None:
        computing_s = part * time.training_s + lost_s
        found.peak_w = plan.pool.power.peak_w
        found.gpu_energy_j = plan.pool.power.gpu_energy_j(duration_s, plan.run.load * computing_s)
        found.server_energy_j = plan.pool.power.server_energy_j(duration_s, found.gpu_energy_j)
        found.prefill_energy_j = wall_j(plan.pool.power, saving_s, 0.0)
        found.recompute_energy_j = wall_j(plan.pool.power, lost_s, plan.run.load * lost_s)
        found.idle_energy_j = wall_j(plan.pool.power, waiting_s, 0.0)
    return found


def wall_j(power: PoolPower, duration_s: float, load_s: float) -> float:
    """Return the energy of servers at the wall over *duration_s*, with the GPUs at full load for *load_s* [J]."""
    return power.server_energy_j(duration_s, power.gpu_energy_j(duration_s, load_s))


MILLION = 1e6


Result = TypeVar("Result")
"""Outcome type of a job or a queue."""


@dataclass(frozen=True)
class WorkColumn(Generic[Result]):
    """Column of summary.csv of a job or a queue."""

    name: str
    unit: str
    """Unit; empty for text and counts, `share` for fractions of one."""
    meaning: str
    value: Callable[[Result], Any]
    always: bool = False
    """True if infeasible rows have a value, too."""
    money: bool = False
    """True if the column is present only if something has a cost."""
    with_service: bool = False
    """True if the column is present only if a service runs beside the jobs."""
    scopes: bool = False
    """True if the column is present only if `carbon.market` asks for scopes."""


@dataclass(frozen=True)
class WorkRow(Generic[Result]):
    """Outcome with its row of summary.csv."""

    outcome: Result
    cells: dict[str, Any]

    @classmethod
    def of(cls, outcome: Result, plan: Any, columns: Iterable[WorkColumn[Result]]) -> "WorkRow[Result]":
        """Return the row of *outcome* under *columns*, without those that are sweep axes of *plan*."""
        cells: dict[str, Any] = {"fleet": plan.fleet, **plan.axes}
        for column in columns:
            if column.name not in cells:
                cells[column.name] = column.value(outcome) if column.always or not plan.infeasible else None
        return cls(outcome, cells)

    @property
    def fleet(self) -> str:
        """Name of the fleet or cluster."""
        return str(self.cells["fleet"])

    @property
    def ok(self) -> bool:
        """True if the job is feasible, or at least one job of the queue can run."""
        return bool(self.cells["status"] == "ok")


JobColumn = WorkColumn[JobOutcome]
JobRow = WorkRow[JobOutcome]


def energy_kwh(pool: PoolOfJobs, intervals: Iterable[Interval]) -> float | None:
    """Return the energy of *intervals* at the site's meter [kWh]; None if the power of a GPU is not known."""
    return None if pool.power is None else pool.pue * fsum(one.server_energy_j for one in intervals) / JOULES_PER_KWH


def total_usd(ledger: Ledger | None) -> float | None:
    """Return the total cost [USD]; None without a ledger."""
    return None if ledger is None else ledger.total_nano_usd / NANO_PER_USD


def _mean_w(one: JobOutcome, field: str) -> float | None:
    if one.plan.pool.power is None:
        return None
    return fsum(getattr(part, field) for part in one.intervals) / one.plan.run.makespan.total_s


def _tokens_per_s(one: JobOutcome) -> float | None:
    return one.plan.run.samples_per_s * one.plan.run.units_per_sample if one.plan.run.counts_tokens else None


def _usd_per_million(one: JobOutcome) -> float | None:
    usd, plan = total_usd(one.ledger), one.plan
    units = plan.run.steps * plan.run.spec.global_batch * plan.run.units_per_sample
    return None if usd is None else usd / units * MILLION


@dataclass(frozen=True, slots=True)
class JobEmissions:
    """Greenhouse gas emissions of jobs from time 0 to their end."""

    pool: PoolOfJobs
    intervals: Sequence[Interval]
    end_s: float

    @property
    def kg(self) -> float | None:
        """Operational and embodied emissions [kg CO2e]; None without `carbon`, or without the power of the GPUs."""
        carbon = self.pool.carbon
        if carbon is None or self.pool.power is None:
            return None
        return carbon.operational_kg(self.intervals) + carbon.embodied_kg(self.intervals, self.end_s / SECONDS_PER_HOUR)

    def scope_kg(self, name: str) -> float | None:
        """Return the emissions of scope *name* (2_location, 2_market or 3) [kg CO2e]; None where no scope is stated."""
        carbon = self.pool.carbon
        if carbon is None or carbon.market is None or self.pool.power is None:
            return None
        window = MeteredWindow.of(self.intervals, 0.0, self.end_s)
        return carbon.scope_3_kg(window) if name == "3" else carbon.scope_2_kg(window, by_market=name == "2_market")


SCOPES = {
    "2_location": "greenhouse gas emissions of scope 2 by location: electricity of owned machines at the grid's "
    "intensity",
    "2_market": "greenhouse gas emissions of scope 2 by market: the same electricity at the intensity of contracts and "
    "certificates",
    "3": "greenhouse gas emissions of scope 3: making of the machines, and electricity of rented ones",
}
"""Scope of the GHG Protocol -> what it covers."""


def emission_columns(emissions: Callable[[Result], JobEmissions]) -> list[WorkColumn[Result]]:
    """Return the columns of greenhouse gases of a job or a queue, with those of scopes."""

    def of_scope(name: str) -> Callable[[Result], float | None]:
        return lambda one: emissions(one).scope_kg(name)

    total = "greenhouse gas emissions; empty without `carbon`"
    return [
        WorkColumn("kg_co2e", "kg", total, lambda one: emissions(one).kg),
        *(
            WorkColumn(f"scope_{name}_kg_co2e", "kg", text, of_scope(name), scopes=True)
            for name, text in SCOPES.items()
        ),
    ]


def states_scopes(pools: Iterable[PoolOfJobs]) -> bool:
    """Return whether one of *pools* has a market-based account of its electricity."""
    return any(one.carbon is not None and one.carbon.market is not None for one in pools)


def _ranks(field: str) -> Callable[[JobOutcome], int]:
    return lambda one: int(getattr(one.plan.run.bound.job.parallel, field))


def _hours(field: str) -> Callable[[JobOutcome], float]:
    return lambda one: float(getattr(one.plan.run.makespan, field)) / SECONDS_PER_HOUR


COLUMNS: tuple[JobColumn, ...] = (
    JobColumn("status", "", "`ok`, or `infeasible` where the job cannot be done",
              lambda one: "infeasible" if one.plan.infeasible else "ok", always=True),
    JobColumn("reason", "", "why the job cannot be done, and what would fit",
              lambda one: one.plan.infeasible, always=True),
    JobColumn("replications", "", "always 1: nothing is random", lambda one: 1, always=True),
    JobColumn("gpus", "", "GPUs of the job", lambda one: one.plan.pool.gpus, always=True),
    JobColumn("servers", "", "servers that the GPUs fill", lambda one: one.plan.pool.servers, always=True),
    *(JobColumn(key, "", meaning, _ranks(at), always=True)
      for key, at, meaning in (("dp", "data", "data-parallel ranks"), ("tp", "tensor", "tensor-parallel ranks"),
                               ("pp", "pipeline", "pipeline stages"), ("zero", "zero", "ZeRO stage"))),
    JobColumn("recompute", "", "recomputed activations: none, selective or full",
              lambda one: one.plan.run.bound.job.recompute, always=True),
    JobColumn("micro_batch", "", "samples that a data-parallel rank computes at once",
              lambda one: one.plan.run.bound.job.micro_batch, always=True),
    JobColumn("precision", "", "precision of matrix products",
              lambda one: one.plan.run.bound.job.precision, always=True),
    JobColumn("framework", "", "framework whose times and memory layout apply",
              lambda one: one.plan.run.bound.framework,
              always=True),
    JobColumn("peak_memory_gb", "GB", "memory needed on the fullest GPU",
              lambda one: one.plan.run.bound.memory.total_bytes / GB,
              always=True),
    JobColumn("memory_gb", "GB", "memory of each GPU", lambda one: one.plan.run.bound.job.gpu.memory_bytes.value / GB,
              always=True),
    JobColumn("steps", "", "optimizer steps", lambda one: one.plan.run.steps),
    JobColumn("step_s", "s", "time of an optimizer step", lambda one: one.plan.run.step.step_s),
    JobColumn("mfu", "share", "model FLOP utilisation: FLOP that the model needs over the GPUs' dense peak",
              lambda one: one.plan.run.mfu),
    JobColumn("tokens_per_s", "tokens/s", "throughput while steps run; empty for images", _tokens_per_s),
    JobColumn("samples_per_s", "1/s", "throughput while steps run", lambda one: one.plan.run.samples_per_s),
    JobColumn("limited_by", "", "cause with the largest part of the step time",
              lambda one: limited_by(one.plan.run.step)),
    JobColumn("makespan_h", "h", "expected time from the first step to the last", _hours("total_s")),
    JobColumn("training_h", "h", "part of the makespan: steps that are not lost", _hours("training_s")),
    JobColumn("saving_h", "h", "part of the makespan: saves", _hours("saving_s")),
    JobColumn("lost_h", "h", "part of the makespan: work lost to failures", _hours("lost_s")),
    JobColumn("restarting_h", "h", "part of the makespan: repairs and restarts", _hours("restarting_s")),
    JobColumn("failures", "", "expected number of failures", lambda one: one.plan.run.makespan.failures),
    JobColumn("checkpoint_interval_s", "s", "training time between saves; empty without checkpoints",
              lambda one: one.plan.run.makespan.interval_s if one.plan.run.spec.checkpoint else None),
    JobColumn("gpu_hours", "h", "GPUs times makespan",
              lambda one: one.plan.pool.gpus * one.plan.run.makespan.total_s / SECONDS_PER_HOUR),
    JobColumn("gpu_power_w_mean", "W", "power of all GPUs, mean over the job",
              lambda one: _mean_w(one, "gpu_energy_j")),
    JobColumn("it_power_w_mean", "W", "power of the servers at the wall, mean over the job",
              lambda one: _mean_w(one, "server_energy_j")),
    JobColumn("energy_kwh", "kWh", "energy at the site's meter, cooling included",
              lambda one: energy_kwh(one.plan.pool, one.intervals)),
    *emission_columns(lambda one: JobEmissions(one.plan.pool, one.intervals, one.plan.run.makespan.total_s)),
    JobColumn("capex_usd", "USD", "capital cost of the machines; 0 if rented",
              lambda one: one.ledger.capex_usd if one.ledger else None, money=True),
    JobColumn("cost_usd", "USD", "cost of the job: its share of the capital cost, and operating cost",
              lambda one: total_usd(one.ledger), money=True),
    JobColumn("cost_usd_per_h", "USD/h", "cost per hour", lambda one: one.ledger.usd_per_h if one.ledger else None,
              money=True),
    JobColumn("usd_per_million_tokens", "USD", "cost of a million tokens trained on; empty for images",
              lambda one: _usd_per_million(one) if one.plan.run.counts_tokens else None, money=True),
    JobColumn("usd_per_million_samples", "USD", "cost of a million samples; empty if tokens are counted",
              lambda one: None if one.plan.run.counts_tokens else _usd_per_million(one), money=True),
)  # fmt: skip


def summary(found: Sequence[JobOutcome]) -> list[JobRow]:
    """Return one row per outcome, in order; cost columns are present only if something has a cost."""
    priced = any(one.plan.pool.costs is not None for one in found)
    scopes = states_scopes(one.plan.pool for one in found)
    columns = [one for one in COLUMNS if (priced or not one.money) and (scopes or not one.scopes)]
    return [JobRow.of(one, one.plan, columns) for one in found]
