"""Of two servers that were measured at the same task, does the prediction name the faster one?

The same task: a model family, a kind of load with its clients or rate, and lengths within 5 %. Servers differ in their
GPUs or in the number of these. Two that were measured within 10 % of each other are no question: repeats differ by as
much.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from sim.study.fidelity.validate.score import SCORED, PredictedRow

APART = 1.1
"""Servers are compared where the larger measurement is at least this many times the smaller."""
ALIKE = 1.05
"""Lengths are the same where the larger is at most this many times the smaller."""
OPEN_LOADS = ("poisson", "constant")
"""Their throughput is the rate that the client offers."""
RANKED = ("throughput", "tpot", "ttft alone", "ttft loaded", "e2e")


@dataclass(frozen=True, slots=True)
class Entrant:
    """A server at a task: one measured quantity with its prediction."""

    task: tuple[object, ...]
    """All but the lengths, which need only be alike."""
    lengths: tuple[float, float]
    """Mean prompt and answer [tokens]."""
    server: tuple[str, int]
    """GPU and number of GPUs."""
    quantity: str
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """How often the faster of two servers is named in one quantity."""

    quantity: str
    comparisons: int
    """Different pairs of servers and model family."""
    row_pairs: int
    right_share: float
    """Mean over comparisons of the share of their row pairs that are ordered as measured."""


def rankings(entrants: Iterable[Entrant]) -> list[Ranking]:
    """A ranking for each quantity with at least one comparison, by name."""
    right: dict[str, dict[tuple[object, ...], list[bool]]] = defaultdict(lambda: defaultdict(list))
    for one, other in _pairs(entrants):
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


def entrants(outcomes: Iterable[PredictedRow]) -> Iterator[Entrant]:
    """The scored rows with a prediction, one entrant for each quantity that can be ranked."""
    for one in outcomes:
        row = one.row
        if one.category != SCORED or not row.isl or not row.osl:
            continue
        for quantity, metric in one.quantities().items():
            if quantity not in RANKED or one.error(metric) is None:
                continue
            if quantity == "throughput" and row.load in OPEN_LOADS:
                continue
            yield Entrant(
                task=(one.pair[1], row.load, row.concurrency, row.rate_req_s, row.num_requests, metric),
                lengths=(row.isl, row.osl),
                server=(one.pair[0], row.n_gpus),
                quantity=quantity,
                measured=row.measured[metric],
                predicted=one.prediction.metrics[metric],
            )


def _pairs(entrants: Iterable[Entrant]) -> Iterator[tuple[Entrant, Entrant]]:
    """Entrants at the same task on different servers whose measurements are apart."""
    tasks: dict[tuple[object, ...], list[Entrant]] = defaultdict(list)
    for entrant in entrants:
        tasks[entrant.quantity, *entrant.task].append(entrant)
    for members in tasks.values():
        for one, other in combinations(members, 2):
            if one.server != other.server and _apart(one, other) and _alike(one, other):
                yield one, other


def _apart(one: Entrant, other: Entrant) -> bool:
    return max(one.measured, other.measured) >= APART * min(one.measured, other.measured)


def _alike(one: Entrant, other: Entrant) -> bool:
    return all(max(pair) <= ALIKE * min(pair) for pair in zip(one.lengths, other.lengths, strict=True))
