"""A verdict that calls one thing cheaper shows by how much, however little; what costs the same is called so."""

from types import SimpleNamespace
from typing import Any

import pytest

from sim.report.breakeven import sentences
from sim.report.words.text import difference


def answer(**usd_per_h: float) -> Any:
    least = min(usd_per_h, key=lambda name: usd_per_h[name])
    machines = {"winner": least, "best_machine": least, "candidates": [], "tipping": [], "tipping_of_machines": []}
    ranked = {
        "products": [sorted(usd_per_h, key=lambda name: usd_per_h[name])],
        "models": {},
        "capacities": [],
        "uncertain": False,
        "after_tax": {},
        "timings": {},
        "starts": None,
        "horizon": SimpleNamespace(months=48, real_rate=None, inflation=None),
        "earnings": {},
    }
    return SimpleNamespace(usd_per_h=usd_per_h, axis="rate_rps", load=2.0, **machines, **ranked)


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.0, "0 %"), (1.234e-4, "0.012 %"), (-2e-6, "-0.0002 %"), (0.006, "0.6 %"), (1.09, "109 %")]
)
def test_no_difference_reads_none(fraction: float, text: str) -> None:
    assert difference(fraction) == text.replace(" ", "\u00a0")


def test_a_candidate_is_cheaper_by_what_is_shown_or_costs_as_much() -> None:
    (told,) = sentences(answer(A=1.0, B=1.0002))
    assert told.endswith(", 0.02\u00a0% below B.")
    (told,) = sentences(answer(A=1.0, B=1.0 + 1e-15))
    assert told.endswith("a month, as much as B.")
