"""Cost of each request: its part of its pool's cost, phase by phase."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.cost.bill.row import LedgerRow
from sim.cost.bill.split import split


class RequestUse(NamedTuple):
    """Busy time of a replica that a request used inside the window [s], named like the phases."""

    pool: str
    prefill: float
    decode: float
    recompute: float


def request_costs(rows: Iterable[LedgerRow], uses: Sequence[RequestUse]) -> list[int]:
    """Return the amount of each use [nano-USD], in the order of *uses*.

    A pool's money for prefill is split by the time that prompts took, that for decode and for recompute in the same
    way, each to the last nano-USD; prices are means over the window. What no use caused (idle time above all)
    stays with the fleet: the amounts and what is left sum to the total exactly.
    """
    totals: dict[tuple[str, str], int] = {}
    for row in rows:
        totals[row.pool, row.phase] = totals.get((row.pool, row.phase), 0) + row.amount_nano_usd
    members: dict[str, list[int]] = {}
    for index, use in enumerate(uses):
        members.setdefault(use.pool, []).append(index)
    costs = [0] * len(uses)
    for pool, indices in members.items():
        for phase in ("prefill", "decode", "recompute"):
            weights = [max(0.0, getattr(uses[index], phase)) for index in indices]
            amount = totals.get((pool, phase), 0)
            if any(weights) and amount > 0:
                for index, part in zip(indices, split(amount, weights), strict=True):
                    costs[index] += part
    return costs
