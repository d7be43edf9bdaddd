"""What draws come to, from draws that were made up."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.study.monte_carlo import MILLION, Ends, FleetDraws, Setting, cheapest_share, spread_of, turned


def fleet(name: str, draws: list[float], low: float, high: float) -> FleetDraws:
    values = np.array(draws)
    central = float(np.median(values))
    return FleetDraws(
        name, {}, {MILLION: central}, {MILLION: values}, {MILLION: np.array([low])}, {MILLION: np.array([high])}
    )


OWN, RENTED = fleet("own", [1.0, 2.0, 3.0], 1.5, 2.5), fleet("rented", [4.0, 1.5, 5.0], 3.0, 6.0)
SETTING = Setting({}, (OWN, RENTED))


def test_shares_and_quantiles_by_hand() -> None:
    assert cheapest_share(SETTING, "own", 3).value == 2 / 3
    spread = spread_of(OWN, MILLION, [0.25, 0.75])
    assert (spread.central, spread.mean, spread.quantiles) == (2.0, 2.0, (1.5, 2.5))


def test_the_difference_of_the_first_two_comes_first() -> None:
    study: Any = SimpleNamespace(inputs=["price of power"], models={})
    found = list(turned(study, SETTING, [MILLION]))
    assert [one.of for one in found] == ["rented less own", "own", "rented"]
    assert found[0].measures[MILLION] == Ends(1.5, 3.5, 2.0)


def test_fleets_of_different_models_are_ranked_apart() -> None:
    study: Any = SimpleNamespace(inputs=["price of power"], models={"own": "small", "rented": "large"})
    assert [(one.model, one.outcomes) for one in SETTING.apart(study.models)] == [
        ("small", (OWN,)),
        ("large", (RENTED,)),
    ]
    assert [one.of for one in turned(study, SETTING, [MILLION])] == ["own", "rented"]
