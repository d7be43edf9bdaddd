"""Prediction of one row of a serving benchmark by a small simulation.

The simulated run yields the metrics that a benchmark client prints. A row derived from two scrapes of a server's
metrics is simulated from one scrape to the other, and evaluated as the server's metrics count.
"""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.benchdata.campaigns import Campaigns, load_campaigns
from sim.benchdata.row import BenchRow, CountedTraffic
from sim.catalogue.catalog import Catalog
from sim.csvio import write_csv
from sim.fidelity.bench_scenario import BenchCase, case_of
from sim.fidelity.names import NotCovered
from sim.fleet.fleet import RunningFleet
from sim.message import Message, joined
from sim.records import FleetLog
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.sweep import Case
from sim.study.confidence import PredictionConfidence, fleet_confidence
from sim.study.metrics.window_requests import percentile
from sim.workload import Workload
from sim.workload.requests import RequestTable, Streams
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS

MS_PER_S = 1000.0


class CountedWorkload(Workload):
    """Workload whose requests arrive at counted times, with lengths of its distributions."""

    pages: CountedTraffic

    @classmethod
    def of(cls, workload: Workload, pages: CountedTraffic) -> "CountedWorkload":
        """Return *workload*, which has been validated, with the arrivals of *pages*."""
        return cls.model_construct(**dict(workload), pages=pages)

    def open_table(self, streams: Streams, horizon_s: float | None) -> RequestTable:
        """Return all requests.

        In draw 0, lengths are evenly spaced quantiles in random order, so that few requests have the right mean.
        """
        assert self.lengths is not None
        arrived_s = self.pages.arrivals_s()
        generator, number = self.pages.generator(), len(arrived_s)
        chances = [
            generator.random(number) if self.pages.draw else generator.permutation((np.arange(number) + 0.5) / number)
            for _ in range(2)
        ]
        prompts, outputs = self.lengths.prompt.quantile(chances[0]), self.lengths.output.quantile(chances[1])
        running = self.pages.running_answers().astype(np.int64)
        outputs[: len(running)] = running
        hashes = self.block_hashes(streams, 0, prompts)
        return RequestTable(arrived_s, prompts, outputs, None, hashes, HASH_BLOCK_TOKENS)


def metrics_between_scrapes(plan: CasePlan, pages: CountedTraffic) -> dict[str, float]:
    """Return the mean time to first token and between tokens from the first to the last scrape [ms].

    The requests that run at the first scrape start early enough to have produced their tokens by then.
    """
    if pages.remaining:
        made = sum(meters.output_tokens for meters in _run_between(plan, pages, 0.0, pages.begin_s).meters)
        wanted = len(pages.remaining) * pages.answer / 2
        pages = replace(pages, gap_s=pages.gap_s * wanted / max(1, made))
    log = _run_between(plan, pages, pages.begin_s, pages.end_s)
    arrived_s, first_s, last_s = (
        np.array([getattr(one, name) for one in log.requests], np.float64)
        for name in ("arrived_s", "first_token_s", "finished_s")
    )
    first = (pages.begin_s < first_s) & (first_s <= pages.end_s)
    answering_s = np.fmin(last_s, pages.end_s) - np.maximum(first_s, pages.begin_s)
    gaps = sum(meters.output_tokens for meters in log.meters) - int(first.sum())
    found = {"ttft_mean_ms": MS_PER_S * float((first_s - arrived_s)[first].mean())} if first.any() else {}
    if gaps > 0:
        found["tpot_mean_ms"] = MS_PER_S * float(np.maximum(0.0, np.nan_to_num(answering_s)).sum()) / gaps
    return found


def _run_between(plan: CasePlan, pages: CountedTraffic, since_s: float, until_s: float) -> FleetLog:
    workload = CountedWorkload.of(plan.workload, pages)
    return RunningFleet(replace(plan, workload=workload, warmup_s=since_s, horizon_s=until_s, drain_limit_s=0.0)).run()


Adjust = Callable[[CasePlan], CasePlan]
Floats = NDArray[np.float64]


CASE = Case("measured", {}, {}, 0)
HIGHEST_UTILISATION = 0.95
"""Value of gpu_memory_utilization for rows that do not fit at the engine's default although they ran."""
SATURATED_WAIT_S, SATURATED_SHARE = 1.0, 0.5
"""Mean wait for admission [s], and its fraction of TTFT, above which a row is saturated."""
STEADY = (0.2, 0.8)
"""Fractions of finished requests between which steady rates are measured."""
OPEN_LOADS = ("poisson", "constant")
LEAST_ANSWER_S = 1e-9
"""Smallest duration of an answer, which has one token [s]."""
REPLAY_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted metrics of a row, in the units of its columns."""

    id: str
    status: str
    """Status: covered, not_covered or infeasible."""
    reason: str = ""
    """Reason for a missing prediction, or notes on an existing one."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Predicted values, keyed by benchdata.METRICS."""
    saturated: bool = False
    """True if TTFT is dominated by the length of a queue."""
    cold_start: bool = False
    """True if the measured mean TTFT includes compiling and tuning the server's kernels."""
    gpu: str = ""
    model: str = ""
    family: str = ""
    engine: str = ""
    quantization: str = ""
    link: str = ""
    """Link between the GPUs; empty for one GPU."""
    gpus: int = 0
    layout: str = ""
    """Name of the parallel layout: one GPU, TP, PP, EP, DP or attention DP."""
    requests: int = 0
    """Number of simulated requests."""
    confidence: PredictionConfidence | None = None
    """Distance to the measurements of the fit, and 80 % intervals of servers around the prediction."""


@dataclass(frozen=True, slots=True)
class PreparedRow:
    """Row with its resolved plan, which `simulate` may run repeatedly with different step times."""

    case: BenchCase
    plan: CasePlan
    note: str = ""
    confidence: PredictionConfidence | None = None


def why_not_covered(row: BenchRow, catalog: Catalog) -> str:
    """Return what the catalogue lacks to predict *row*; empty if nothing."""
    try:
        case_of(row, catalog, campaigns_of(catalog))
    except NotCovered as error:
        return str(error)
    return ""


def predict(row: BenchRow, catalog: Catalog, adjust: Adjust | None = None) -> Prediction:
    """Predict all metrics of *row* with a small simulation.

    *adjust* may replace parts of the plan, such as the step time.
    """
    try:
        with prepared(row, catalog) as ready:
            return simulate(ready, adjust)
    except NotCovered as error:
        gpu, model = error.gpu, error.model
        return Prediction(
            row.id,
            "not_covered",
            str(error),
            gpu=gpu.id if gpu else "",
            model=model.id if model else "",
            family=(model.family or model.id) if model else "",
            engine=error.engine.id if error.engine else "",
        )


@contextmanager
def prepared(row: BenchRow, catalog: Catalog) -> Iterator[PreparedRow]:
    """Provide *row* prepared for simulation within a `with` block. Raises NotCovered."""
    with _clean_replay(row) as clean:
        case = case_of(clean, catalog, campaigns_of(catalog))
        scenario = case.scenario()
        plan = resolve(scenario, CASE, catalog)
        note = ""
        if plan.infeasible and row.gpu_memory_utilization is None:
            pressed = resolve(case.scenario(gpu_memory_utilization=HIGHEST_UTILISATION), CASE, catalog)
            if not pressed.infeasible:
                note = Message("fits at gpu_memory_utilization {limit} only", HIGHEST_UTILISATION)
                plan = pressed
        load = (case.row.concurrency or case.row.avg_batch, case.row.isl)
        yield PreparedRow(case, plan, note, fleet_confidence(scenario, scenario.fleets[0], catalog, load))


def simulate(ready: PreparedRow, adjust: Adjust | None = None) -> Prediction:
    """Simulate a prepared row. Return its prediction."""
    case, plan = ready.case, ready.plan
    names = case.names
    known: dict[str, Any] = {
        "gpu": names.gpu.id,
        "model": names.model.id,
        "family": names.model.family or names.model.id,
        "engine": names.engine.id,
        "quantization": names.quantization,
        "link": names.link if case.setup.n_gpus > 1 else "",
        "gpus": case.setup.n_gpus,
        "layout": case.layout,
        "cold_start": case.setup.cold_start,
        "confidence": ready.confidence,
    }
    notes = [note for note in (ready.note, *case.notes) if note]
    if plan.infeasible:
        return Prediction(case.row.id, "infeasible", joined("; ", [plan.infeasible, *notes]), **known)
    if adjust is not None:
        plan = adjust(plan)
    if case.row.counted is not None:
        metrics = metrics_between_scrapes(plan, case.row.counted)
        return Prediction(
            case.row.id, "covered", joined("; ", notes), metrics, requests=case.row.num_requests or 0, **known
        )
    run = _run(plan, case)
    if not run.answered:
        return Prediction(case.row.id, "infeasible", joined("; ", ["no request fits the KV cache", *notes]), **known)
    return Prediction(
        case.row.id,
        "covered",
        joined("; ", notes),
        run.metrics(),
        run.saturated,
        requests=len(run.log.requests),
        **known,
    )


def _run(plan: CasePlan, case: BenchCase) -> "SimulatedRun":
    """Simulate a case.

    If the row has both a rate and a limit on requests in flight, the simulated load is the one that limits.
    """
    run = SimulatedRun(RunningFleet(with_client_pause(plan, case.row.isl)).run(), case)
    offered = case.open_loop(run.metrics()["req_s"]) if run.answered else None
    return run if offered is None else SimulatedRun(RunningFleet(replace(plan, workload=offered)).run(), case)


def with_client_pause(plan: CasePlan, prompt_tokens: float | None) -> CasePlan:
    """Return *plan* with the delay of the API server added to the think time of closed-loop clients.

    *prompt_tokens*: tokens of the mean prompt; None: the time to tokenise prompts is left out.

    A client sends its next request when its answer has passed through the API server.
    """
    pool = plan.pools[0]
    overhead_s = pool.request_overhead_s + pool.tokenising_s * (prompt_tokens or 0.0)
    loop = plan.workload.closed_loop()
    if loop is None or not overhead_s:
        return plan
    arrivals = loop.model_copy(update={"think_s": loop.think_s + overhead_s, "pauses": "constant"})
    return replace(plan, workload=plan.workload.model_copy(update={"arrivals": arrivals}))


class SimulatedRun:
    """Requests of a simulated run as arrays, with the metrics that a benchmark client would print."""

    def __init__(self, log: FleetLog, case: BenchCase) -> None:
        answered = [request for request in log.requests if np.isfinite(request.finished_s)]
        count = self.answered = len(answered)
        self.log, self.case = log, case
        self.arrived_s = np.fromiter((r.arrived_s for r in answered), float, count)
        self.started_s = np.fromiter((r.started_s for r in answered), float, count)
        self.first_token_s = np.fromiter((r.first_token_s for r in answered), float, count)
        self.finished_s = np.fromiter((r.finished_s for r in answered), float, count)
        self.prompt_tokens = np.fromiter((r.prompt_tokens for r in answered), float, count)
        self.output_tokens = np.fromiter((r.output_tokens for r in answered), float, count)

    @property
    def saturated(self) -> bool:
        """True if most of TTFT is a wait for admission."""
        wait_s = float((self.started_s - self.arrived_s).mean())
        ttft_s = float((self.first_token_s - self.arrived_s).mean())
        return wait_s > SATURATED_WAIT_S and wait_s > SATURATED_SHARE * ttft_s

    def metrics(self) -> dict[str, float]:
        """Return the metrics, keyed by benchdata.METRICS.

        Times per output token are over requests with more than one token.
        """
        several = self.output_tokens > 1
        gaps_s = (self.finished_s - self.first_token_s) / np.maximum(self.output_tokens - 1, 1)
        seen_s = self.first_token_s + self.case.setup.unseen_tokens * gaps_s
        waits = {} if self._queue_was_cut else _times("ttft", seen_s - self.arrived_s)
        gap_s = gaps_s[several]
        if self.case.setup.tpot_is_itl:
            gap_s = np.repeat(gap_s, self.output_tokens[several].astype(int) - 1)
        req_s = self._requests_per_s()
        decoding = self.case.setup.decode_rate and gap_s.size > 0
        found = {
            "output_tok_s": 1 / float(gap_s.mean()) if decoding else req_s * float(self.output_tokens.mean()),
            "total_tok_s": req_s * float((self.output_tokens + self.prompt_tokens).mean()),
            "req_s": req_s,
            **waits,
            **_times("tpot", gap_s),
        }
        if waits:
            found["e2e_mean_ms"] = MS_PER_S * float((self.finished_s - self.arrived_s).mean())
        energy_j = sum(interval.gpu_energy_j for interval in self.log.intervals)
        if energy_j > 0:
            found["power_w"] = energy_j / float(self.finished_s.max() - self.arrived_s.min())
        return found

    @property
    def _queue_was_cut(self) -> bool:
        """True if the measured queue was longer than the simulated one, so that waits are not comparable."""
        cut = self.answered < self.case.run_requests
        return cut and (self.case.row.load == "burst" or (self.case.row.load in OPEN_LOADS and self.saturated))

    def _requests_per_s(self) -> float:
        """Return the throughput of the whole run [1/s]; a run that was cut continues at its steady rate."""
        whole_s = float(self.finished_s.max() - self.arrived_s.min())
        left = self.case.run_requests - self.answered
        if self.case.setup.steady or left > 0:
            steady = self._steady_per_s()
            return steady if self.case.setup.steady else (self.answered + left) / (whole_s + left / steady)
        return self.answered / whole_s

    def _steady_per_s(self) -> float:
        finished_s = np.sort(self.finished_s)
        first_s, last_s = (float(finished_s[int(share * (self.answered - 1))]) for share in STEADY)
        if last_s <= first_s:
            return self.answered / float(finished_s[-1] - self.arrived_s.min())
        return (self._done_by(last_s) - self._done_by(first_s)) / (last_s - first_s)

    def _done_by(self, at_s: float) -> float:
        """Return the number of requests answered by *at_s*.

        Unfinished requests count by the fraction of their answer, because equal lengths finish in groups.
        """
        answering_s = np.maximum(self.finished_s - self.first_token_s, LEAST_ANSWER_S)
        return float(np.clip((at_s - self.finished_s) / answering_s + 1.0, 0.0, 1.0).sum())


def _times(name: str, values_s: Floats) -> dict[str, float]:
    if not values_s.size:
        return {}
    return {
        f"{name}_mean_ms": MS_PER_S * float(values_s.mean()),
        f"{name}_p50_ms": MS_PER_S * percentile(values_s, 50),
        f"{name}_p99_ms": MS_PER_S * percentile(values_s, 99),
    }


@contextmanager
def _clean_replay(row: BenchRow) -> Iterator[BenchRow]:
    """Provide *row* with its recorded requests reduced to the replayed columns, within a `with` block."""
    if not row.replay:
        yield row
        return
    with TemporaryDirectory(prefix="gpufleet-") as folder:
        clean = Path(folder) / "requests.csv"
        with Path(row.replay).open(encoding="utf-8", newline="") as source:
            rows = csv.DictReader(line for line in source if not line.startswith("#"))
            write_csv(clean, REPLAY_COLUMNS, ([one.get(name) for name in REPLAY_COLUMNS] for one in rows))
        yield replace(row, replay=str(clean))


def campaigns_of(catalog: Catalog) -> Campaigns:
    """Return data/benchmarks.yaml of *catalog*, read once."""
    return _campaigns(catalog.root)


@cache
def _campaigns(root: Path) -> Campaigns:
    return load_campaigns(root / "benchmarks.yaml")
