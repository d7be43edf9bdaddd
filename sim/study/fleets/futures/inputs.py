"""What is uncertain in a scenario, and its draws: common random numbers, one named stream an input.

What several places say of one thing is one input and moves together: the price of a card that two fleets are quoted,
the hours of one tariff. All else is drawn independently.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.rng import stream
from sim.scenario.reading.distribution import Uncertain
from sim.scenario.reading.errors import Place, dotted
from sim.scenario.reading.layers import place_of
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data

World = Mapping[Place, float]
"""One future: the value at every uncertain place."""
LOW, HIGH = 0.1, 0.9
"""Quantiles between which a tornado chart varies each input."""


@dataclass(frozen=True, slots=True)
class UncertainInput:
    """One thing that is uncertain."""

    name: str
    """Dotted path within the scenario; of a quote, the price or the rent of its item."""
    paths: tuple[str, ...]
    places: tuple[Place, ...]
    members: tuple[Uncertain, ...]

    def at(self, *shares: float) -> list[dict[Place, float]]:
        """Its values with the probabilities *shares* (0 to 1) below them, at each of its places."""
        values = [one.quantiles(*shares) for one in self.members]
        return [dict(zip(self.places, row, strict=True)) for row in zip(*values, strict=True)]

    def drawn(self, seed: int, draws: int) -> dict[Place, NDArray[np.float64]]:
        """Values of *draws* futures at each of its places. More draws go on where fewer end."""
        u = stream(seed, 0, f"futures {self.name}").random(draws)
        return {place: one.distribution.quantile(u) for place, one in zip(self.places, self.members, strict=True)}


def inputs_of(scenario: Scenario) -> tuple[UncertainInput, ...]:
    """The inputs of *scenario*, in the order of its file."""
    data = as_data(scenario)
    found: dict[str, list[tuple[str, Place, Uncertain]]] = {}
    for path, one in (scenario.futures.inputs if scenario.futures else {}).items():
        place = place_of(data, path)
        found.setdefault(_thing(place, scenario), []).append((path, place, one))
    return tuple(_input(thing, members) for thing, members in found.items())


def _input(thing: str, members: list[tuple[str, Place, Uncertain]]) -> UncertainInput:
    paths, places, distributions = zip(*members, strict=True)
    return UncertainInput(thing, paths, places, distributions)


def _thing(place: Place, scenario: Scenario) -> str:
    """What the value at *place* is a value of."""
    if place[0] == "fleets":
        fleet = scenario.fleets[int(place[1])]
        if place[2:4] == ("cost", "quotes") and fleet.cost is not None:
            return f"{'price' if fleet.cost.acquisition == 'buy' else 'rent'} of {place[4]}"
        return f"{fleet.name}: {dotted(tuple(_without_items(place[2:])))}"
    return dotted(tuple(_without_items(place)))


def _without_items(place: Place) -> Iterator[str | int]:
    """*place* up to the list that it is an item of; a tariff is one thing with all its seasons."""
    for step in place:
        if isinstance(step, int):
            return
        yield step
        if step == "electricity":
            return


def central_world(inputs: tuple[UncertainInput, ...]) -> dict[Place, float]:
    """Every input at its central value."""
    return {
        place: one.distribution.central for each in inputs for place, one in zip(each.places, each.members, strict=True)
    }
