"""Scores of predictions of serving benchmarks against measurements.

Errors: within a group, every pair of GPU and model family has the same weight. The error of a pair is the median of
its rows, that of the group the median (and the 90th percentile) of its pairs.

Rankings: fraction of comparisons in which the prediction names the faster of two servers measured at the same task. A
task is a model family, a kind of load with its clients or rate, and lengths within 5 %. Servers differ in GPUs or in
their number. Servers measured within 10 % of each other are not compared, as repeated runs differ by as much.

Joint errors: signed errors of TTFT, TPOT and answer time in the same row, by engine, layout and load. A TTFT predicted
too short together with a TPOT too long means that the simulated scheduler admits prompts earlier than the measured one.

Intervals: fraction of measurements within the intervals of their predictions.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import inf, isfinite
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fidelity.prediction import MS_PER_S, Prediction, campaigns_of, predict
from sim.study.confidence import MARKS

NOT_COVERED_ERROR = 1.0
"""Error of a row without a prediction (100 %)."""
QUANTITIES: dict[str, tuple[str, ...]] = {
    "throughput": ("output_tok_s", "total_tok_s", "req_s"),
    "tpot": ("tpot_mean_ms", "tpot_p50_ms"),
    "ttft": ("ttft_mean_ms", "ttft_p50_ms"),
    "e2e": ("e2e_mean_ms",),
    "tpot p99": ("tpot_p99_ms",),
    "ttft p99": ("ttft_p99_ms",),
    "power": ("power_w",),
}
"""Columns of each scored quantity; the first that was measured is used."""
SINGLE_LOADS = ("single", "static_batch")
SCORED, OWN_CLASS, UNTRUSTED, SPECULATIVE = "score", "own class", "not trusted", "speculative decoding"


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """Measured row with its prediction."""

    row: BenchRow
    prediction: Prediction

    @property
    def category(self) -> str:
        """Class of rows, from `use`, `trust` and what the simulation omits."""
        if self.row.trust == "C":
            return UNTRUSTED
        if self.row.use == "own_class":
            return OWN_CLASS
        return SPECULATIVE if self.row.spec_decode else SCORED

    @property
    def pair(self) -> tuple[str, str]:
        """GPU and model family, from the catalogue or else from the row."""
        prediction = self.prediction
        return prediction.gpu or self.row.gpu, self.row.model_family or prediction.family or self.row.model

    @property
    def covered(self) -> bool:
        """True if there is a prediction."""
        return self.prediction.status == "covered"

    def error(self, metric: str) -> float | None:
        """Return predicted / measured - 1; None if either is missing."""
        measured, predicted = self.row.measured.get(metric), self.prediction.metrics.get(metric)
        return None if not measured or predicted is None or not isfinite(predicted) else predicted / measured - 1

    def quantities(self) -> dict[str, str]:
        """Return the column of each scored quantity; TTFT is split by what it measures."""
        found = {}
        for quantity, metrics in QUANTITIES.items():
            metric = next((metric for metric in metrics if metric in self.row.measured), None)
            if metric is not None:
                found[self._ttft_kind(quantity) if quantity.startswith("ttft") else quantity] = metric
        return found

    def _ttft_kind(self, quantity: str) -> str:
        """Return the TTFT quantity: of a cold server, alone on the server, under load, or saturated by a queue."""
        load = self.row.load
        if self.prediction.cold_start:
            return f"{quantity} cold"
        if load in SINGLE_LOADS or (load == "closed_loop" and self.row.concurrency == 1):
            return f"{quantity} alone"
        return f"{quantity} saturated" if self.prediction.saturated else f"{quantity} loaded"


@dataclass(frozen=True, slots=True)
class Score:
    """Score of one quantity in one group of rows."""

    group: tuple[str, ...]
    quantity: str
    rows: int
    covered: int
    pairs: int
    median_error: float
    """Median over pairs of the pair's median absolute error; a row without a prediction has error 1."""
    p90_error: float
    """90th percentile over pairs of the pair's median absolute error."""
    covered_median_error: float | None
    """Median over pairs of the pair's median absolute error, for rows with a prediction."""
    bias: float | None
    """Median over pairs of the pair's median signed error, for rows with a prediction."""


def scores(outcomes: Iterable[PredictedRow], group: Callable[[PredictedRow], tuple[str, ...]]) -> list[Score]:
    """Return the scores of all quantities in all groups, sorted by name."""
    members: dict[tuple[tuple[str, ...], str], list[tuple[PredictedRow, str]]] = defaultdict(list)
    for outcome in outcomes:
        for quantity, metric in outcome.quantities().items():
            members[group(outcome), quantity].append((outcome, metric))
    return [_score(*key, found) for key, found in sorted(members.items())]


def _score(group: tuple[str, ...], quantity: str, members: Sequence[tuple[PredictedRow, str]]) -> Score:
    by_pair: dict[tuple[str, str], list[float]] = defaultdict(list)
    signed: dict[tuple[str, str], list[float]] = defaultdict(list)
    for outcome, metric in members:
        error = outcome.error(metric)
        by_pair[outcome.pair].append(NOT_COVERED_ERROR if error is None else abs(error))
        if error is not None:
            signed[outcome.pair].append(error)
    pairs = [float(np.median(errors)) for errors in by_pair.values()]
    known = [float(np.median(np.abs(errors))) for errors in signed.values()]
    return Score(
        group,
        quantity,
        rows=len(members),
        covered=sum(map(len, signed.values())),
        pairs=len(pairs),
        median_error=float(np.median(pairs)),
        p90_error=float(np.percentile(pairs, 90)),
        covered_median_error=float(np.median(known)) if known else None,
        bias=float(np.median([np.median(errors) for errors in signed.values()])) if signed else None,
    )


@dataclass(frozen=True, slots=True)
class Coverage:
    """Number of predicted rows of one class."""

    category: str
    rows: int
    covered: int
    infeasible: int
    pairs: int
    pairs_covered: int
    """Number of pairs with at least one prediction."""

    @property
    def share(self) -> float:
        """Fraction of rows with a prediction."""
        return self.covered / self.rows


def coverage(outcomes: Sequence[PredictedRow]) -> list[Coverage]:
    """Return the coverage by class, the scored class first."""
    categories = sorted({one.category for one in outcomes}, key=lambda name: (name != SCORED, name))
    found = []
    for category in categories:
        members = [one for one in outcomes if one.category == category]
        covered = [one for one in members if one.covered]
        infeasible = sum(one.prediction.status == "infeasible" for one in members)
        pairs = {one.pair for one in members}, {one.pair for one in covered}
        found.append(Coverage(category, len(members), len(covered), infeasible, len(pairs[0]), len(pairs[1])))
    return found


def reasons(outcomes: Iterable[PredictedRow]) -> list[tuple[str, int]]:
    """Return the reasons for missing predictions with their counts, the most frequent first."""
    counted: dict[str, int] = defaultdict(int)
    for outcome in outcomes:
        prediction = outcome.prediction
        parts = prediction.reason.split("; ")
        for reason in {"not_covered": parts, "infeasible": parts[:1]}.get(prediction.status, []):
            counted[reason] += 1
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))


ALL = "all"
"""Layout or load of a joint score over all of them."""
CLIENTS = (2, 16, 64, 256)
"""Numbers of clients at which the load classes of closed loops begin."""


@dataclass(frozen=True, slots=True)
class JointError:
    """Errors (predicted / measured - 1) of TTFT and TPOT of one row."""

    engine: str
    layout: str
    load: str
    pair: tuple[str, str]
    """GPU and model family."""
    ttft: float
    tpot: float
    answer: float
    """Error of TTFT + TPOT x (output tokens - 1)."""
    e2e: float | None = None
    """Error of the mean end-to-end latency; None if not measured."""


@dataclass(frozen=True, slots=True)
class JointScore:
    """Bias of TTFT and TPOT in rows that have both: medians over pairs of the pair's median signed error."""

    engine: str
    layout: str
    load: str
    rows: int
    pairs: int
    ttft_bias: float
    tpot_bias: float
    answer_bias: float
    answer_error: float
    """Median over pairs of the pair's median absolute error of TTFT + TPOT x (output tokens - 1)."""
    e2e_bias: float | None
    ttft_short_tpot_long: int
    """Number of rows whose TTFT is predicted too short and whose TPOT too long."""
    ttft_long_tpot_short: int
    both_short: int
    both_long: int


def load_class(row: BenchRow) -> str:
    """Return the load class of *row*: a range of clients of a closed loop, else the kind of load.

    >>> load_class(BenchRow(0, "a", "g", "m", concurrency=40)), load_class(BenchRow(0, "a", "g", "m", load="poisson"))
    ('16 to 63 clients', 'poisson')
    """
    clients = 1 if row.load in SINGLE_LOADS else _in_flight(row)
    if row.load not in ("closed_loop", *SINGLE_LOADS):
        return row.load
    if clients < CLIENTS[0]:
        return "1 client"
    place = sum(clients >= first for first in CLIENTS)
    last = f"to {CLIENTS[place] - 1}" if place < len(CLIENTS) else "and more"
    return f"{CLIENTS[place - 1]} {last} clients"


def _in_flight(row: BenchRow) -> float:
    """Return the largest number of requests of a closed loop that can be in flight [1].

    There are no more than clients and requests, nor, where the clients send at a rate, than rate x answer time.
    """
    found = [row.concurrency or 1, row.num_requests or inf]
    answer_s = sum(
        next((row.measured[name] for name in QUANTITIES[of] if row.measured.get(name)), 0.0) / MS_PER_S * tokens
        for of, tokens in (("ttft", 1.0), ("tpot", row.osl or 1.0))
    )
    return min(*found, row.rate_req_s * answer_s) if row.rate_req_s and answer_s else min(found)


def answer_error(row: BenchRow, ttft: tuple[float, float], tpot: tuple[float, float]) -> float:
    """Return the error of TTFT + TPOT x (output tokens - 1), from (predicted, measured) times in one unit."""
    gaps = max((row.osl or 1.0) - 1.0, 0.0)
    return (ttft[0] + gaps * tpot[0]) / (ttft[1] + gaps * tpot[1]) - 1


def joint_errors(outcomes: Iterable[PredictedRow]) -> Iterator[JointError]:
    """Yield the errors of scored rows that have TTFT and TPOT; saturated rows are left out."""
    for one in outcomes:
        named = one.quantities()
        ttft, tpot = named.get("ttft loaded") or named.get("ttft alone"), named.get("tpot")
        if one.category != SCORED or ttft is None or tpot is None:
            continue
        errors = one.error(ttft), one.error(tpot)
        if errors[0] is None or errors[1] is None:
            continue
        predicted, measured = one.prediction.metrics, one.row.measured
        answer = answer_error(one.row, (predicted[ttft], measured[ttft]), (predicted[tpot], measured[tpot]))
        yield JointError(
            one.prediction.engine, one.prediction.layout, load_class(one.row), one.pair,
            errors[0], errors[1], answer, one.error("e2e_mean_ms"),
        )  # fmt: skip


def joint_scores(errors: Iterable[JointError]) -> list[JointScore]:
    """Return the joint scores of each engine, then of its layouts, then of its load classes."""
    groups: dict[tuple[str, str, str], list[JointError]] = defaultdict(list)
    for one in errors:
        for layout, load in {(ALL, ALL), (one.layout, ALL), (ALL, one.load)}:
            groups[one.engine, layout, load].append(one)
    order = sorted(groups, key=lambda key: (key[0], key[2] != ALL, key[1] != ALL, key[1], _first_number(key[2])))
    return [_joint_score(*key, groups[key]) for key in order]


def _first_number(load: str) -> tuple[int, str]:
    first = load.split(" ")[0]
    return (int(first), "") if first.isdigit() else (CLIENTS[-1] + 1, load)


def _joint_score(engine: str, layout: str, load: str, members: Sequence[JointError]) -> JointScore:
    by_pair: dict[tuple[str, str], list[JointError]] = defaultdict(list)
    for one in members:
        by_pair[one.pair].append(one)

    def median(value: Callable[[JointError], float | None]) -> float | None:
        found = [[x for one in rows if (x := value(one)) is not None] for rows in by_pair.values()]
        medians = [float(np.median(values)) for values in found if values]
        return float(np.median(medians)) if medians else None

    signs = [(one.ttft < 0, one.tpot < 0) for one in members]
    return JointScore(
        engine, layout, load, len(members), len(by_pair),
        ttft_bias=median(lambda one: one.ttft) or 0.0,
        tpot_bias=median(lambda one: one.tpot) or 0.0,
        answer_bias=median(lambda one: one.answer) or 0.0,
        answer_error=median(lambda one: abs(one.answer)) or 0.0,
        e2e_bias=median(lambda one: one.e2e),
        ttft_short_tpot_long=signs.count((True, False)),
        ttft_long_tpot_short=signs.count((False, True)),
        both_short=signs.count((True, True)),
        both_long=signs.count((False, False)),
    )  # fmt: skip


ALONE_S = 1.5
"""Time of work in this process before others are started, which takes about as long [s]."""
CHUNK = 24
"""Number of rows passed to a process at once."""

Progress = Callable[[int, int, int], None]


def validate(rows: Sequence[BenchRow], catalog: Catalog, workers: int, progress: Progress) -> list[PredictedRow]:
    """Predict every row. Return the predicted rows in the order of the table.

    *progress* is called with (done, all, 0). The rows are independent: the result does not depend on *workers*.
    """
    campaigns = campaigns_of(catalog)
    rows = [campaigns.as_run(row) for row in rows]
    done: dict[str, Prediction] = {}
    for prediction in _predictions(rows, catalog, workers):
        done[prediction.id] = prediction
        progress(len(done), len(rows), 0)
    return [PredictedRow(row, done[row.id]) for row in rows]


def _predictions(rows: Sequence[BenchRow], catalog: Catalog, workers: int) -> Iterator[Prediction]:
    started = time.monotonic()
    place = 0
    while place < len(rows) and (workers == 1 or time.monotonic() - started < ALONE_S):
        yield predict(rows[place], catalog)
        place += 1
    left = rows[place:]
    if left:
        # neighbouring rows are alike, so they are dealt out in turn and all chunks take about as long
        chunks = [left[start :: -(-len(left) // CHUNK)] for start in range(-(-len(left) // CHUNK))]
        parallel = Parallel(n_jobs=min(workers, len(chunks)), return_as="generator_unordered", batch_size=1)
        for found in parallel(delayed(_in_worker)(chunk, catalog.root) for chunk in chunks):
            yield from found


def _in_worker(rows: Sequence[BenchRow], root: Path) -> list[Prediction]:
    return [predict(row, _catalog(root)) for row in rows]


@cache
def _catalog(root: Path) -> Catalog:
    """Return the catalogue under *root*, cached per process."""
    return load_catalog(root)


LEAST_RATIO = 1.1
"""Smallest ratio of two measurements whose servers are compared."""
MOST_LENGTH_RATIO = 1.05
"""Largest ratio of lengths of the same task."""
OPEN_LOADS = ("poisson", "constant")
"""Loads whose throughput is the rate that the client offers."""
RANKED_QUANTITIES = ("throughput", "tpot", "ttft alone", "ttft loaded", "e2e")


@dataclass(frozen=True, slots=True)
class RankedServer:
    """Server at a task: one measured quantity with its prediction."""

    task: tuple[object, ...]
    """Task apart from the lengths, which only need to be similar."""
    lengths: tuple[float, float]
    """Mean prompt and answer [tokens]."""
    server: tuple[str, int]
    """GPU and number of GPUs."""
    quantity: str
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """Fraction of comparisons of one quantity in which the faster server is named."""

    quantity: str
    comparisons: int
    """Number of different combinations of two servers and a model family."""
    row_pairs: int
    right_share: float
    """Mean over comparisons of the fraction of row pairs that are ordered as measured."""


def rankings(ranked_servers: Iterable[RankedServer]) -> list[Ranking]:
    """Return a ranking for each quantity with at least one comparison, sorted by name."""
    right: dict[str, dict[tuple[object, ...], list[bool]]] = defaultdict(lambda: defaultdict(list))
    for one, other in _pairs(ranked_servers):
        named = (one.predicted - other.predicted) * (one.measured - other.measured) > 0
        servers = sorted((one.server, other.server))
        right[one.quantity][(one.task[0], *servers)].append(named)
    return [
        Ranking(
            quantity,
            comparisons=len(compared),
            row_pairs=sum(map(len, compared.values())),
            right_share=sum(sum(named) / len(named) for named in compared.values()) / len(compared),
        )
        for quantity, compared in sorted(right.items())
    ]


def ranked_servers(outcomes: Iterable[PredictedRow]) -> Iterator[RankedServer]:
    """Yield the scored rows with a prediction, once per quantity that can be ranked."""
    for one in outcomes:
        row = one.row
        if one.category != SCORED or not row.isl or not row.osl:
            continue
        for quantity, metric in one.quantities().items():
            if quantity not in RANKED_QUANTITIES or one.error(metric) is None:
                continue
            if quantity == "throughput" and row.load in OPEN_LOADS:
                continue
            yield RankedServer(
                task=(one.pair[1], row.load, row.concurrency, row.rate_req_s, row.num_requests, metric),
                lengths=(row.isl, row.osl),
                server=(one.pair[0], row.n_gpus),
                quantity=quantity,
                measured=row.measured[metric],
                predicted=one.prediction.metrics[metric],
            )


def _pairs(ranked_servers: Iterable[RankedServer]) -> Iterator[tuple[RankedServer, RankedServer]]:
    """Yield pairs of different servers at the same task whose measurements differ enough."""
    tasks: dict[tuple[object, ...], list[RankedServer]] = defaultdict(list)
    for server in ranked_servers:
        tasks[server.quantity, *server.task].append(server)
    for members in tasks.values():
        for one, other in combinations(members, 2):
            if one.server != other.server and _differ_clearly(one, other) and _similar_lengths(one, other):
                yield one, other


def _differ_clearly(one: RankedServer, other: RankedServer) -> bool:
    return max(one.measured, other.measured) >= LEAST_RATIO * min(one.measured, other.measured)


def _similar_lengths(one: RankedServer, other: RankedServer) -> bool:
    return all(max(pair) <= MOST_LENGTH_RATIO * min(pair) for pair in zip(one.lengths, other.lengths, strict=True))


METRIC_OF = {"throughput": "throughput", "tpot": "tpot", "ttft alone": "ttft", "ttft loaded": "ttft", "power": "power"}
"""Metric whose interval applies to a scored quantity."""


@dataclass(frozen=True, slots=True)
class IntervalCoverage:
    """Fraction of measurements of a quantity within their intervals, for predictions with one mark."""

    mark: str
    quantity: str
    rows: int
    pairs: int
    share: float
    """Fraction within the interval; every pair of GPU and model family has the same weight."""


def interval_coverage(outcomes: Iterable[PredictedRow]) -> list[IntervalCoverage]:
    """Return the interval coverage per mark and quantity, the nearest mark first.

    Rows without an interval are ignored.
    """
    found: dict[tuple[int, str], dict[tuple[str, str], list[bool]]] = defaultdict(lambda: defaultdict(list))
    for one in outcomes:
        confidence = one.prediction.confidence
        if confidence is None or one.category != SCORED:
            continue
        for quantity, column in one.quantities().items():
            error, ends = one.error(column), confidence.factors.get(METRIC_OF.get(quantity, ""))
            if error is None or ends is None or (quantity == "throughput" and one.row.load in OPEN_LOADS):
                continue
            found[MARKS.index(confidence.mark), quantity][one.pair].append(ends[0] <= 1 / (1 + error) <= ends[1])
    return [
        IntervalCoverage(
            MARKS[mark],
            quantity,
            rows=sum(map(len, pairs.values())),
            pairs=len(pairs),
            share=sum(sum(within) / len(within) for within in pairs.values()) / len(pairs),
        )
        for (mark, quantity), pairs in sorted(found.items())
    ]
