"""Whether measurements lie within the intervals that were told with their predictions."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from sim.study.fidelity.marks import MARKS
from sim.study.fidelity.validate.score import SCORED, PredictedRow

METRIC_OF = {"throughput": "throughput", "tpot": "tpot", "ttft alone": "ttft", "ttft loaded": "ttft", "power": "power"}
"""Scored quantity -> the metric whose interval it has."""
OPEN_LOADS = ("poisson", "constant")
"""Their throughput is the rate that the client offers."""


@dataclass(frozen=True, slots=True)
class Inside:
    """Measurements of one quantity whose predictions have one mark."""

    mark: str
    quantity: str
    rows: int
    pairs: int
    share: float
    """Within the interval, pairs of GPU and model family weighing the same."""


def inside(outcomes: Iterable[PredictedRow]) -> list[Inside]:
    """A line for each mark and quantity, from the nearest mark; rows without an interval are left out."""
    found: dict[tuple[int, str], dict[tuple[str, str], list[bool]]] = defaultdict(lambda: defaultdict(list))
    for one in outcomes:
        worth = one.prediction.worth
        if worth is None or one.category != SCORED:
            continue
        for quantity, column in one.quantities().items():
            error, ends = one.error(column), worth.factors.get(METRIC_OF.get(quantity, ""))
            if error is None or ends is None or (quantity == "throughput" and one.row.load in OPEN_LOADS):
                continue
            found[MARKS.index(worth.mark), quantity][one.pair].append(ends[0] <= 1 / (1 + error) <= ends[1])
    return [
        Inside(
            MARKS[mark],
            quantity,
            rows=sum(map(len, pairs.values())),
            pairs=len(pairs),
            share=sum(sum(told) / len(told) for told in pairs.values()) / len(pairs),
        )
        for (mark, quantity), pairs in sorted(found.items())
    ]
