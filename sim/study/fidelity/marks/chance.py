"""Whether a sizing survives the model's own error: fleets at speeds of real servers, with replicas added to match.

A draw gives each fleet a speed over the predicted one, from the interval of its mark; a part of the error is common to
both fleets, as both run on hosts of the same kind. A fleet that meets the service level with n replicas and not with
n - 1 needs a number between these at the predicted speed, any as likely as another; at another speed it needs that
number over the speed, and what it costs grows with its replicas.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.rng import stream
from sim.study.fidelity.marks.interval import Worth
from sim.study.metrics.statistics import normal_quantile

DRAWS = 4000
TENTH_PERCENTILE = normal_quantile(0.9)
"""Standard deviations from the median to the 10th or 90th percentile of a normal distribution."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bid:
    """A fleet that meets the service level, or is taken to."""

    usd_per_h: float
    replicas: int
    worth: Worth


@dataclass(frozen=True, slots=True)
class Chance:
    """How often the winner stays cheaper than its rival."""

    rival: str
    share: float
    """Of the draws."""
    at_least: bool
    """The rival was not simulated: it is taken to cost what it costs at the least."""


def chance_cheaper(one: Bid, other: Bid, seed: int) -> float | None:
    """Share of draws in which *one* is cheaper than *other*, of those in which they cost the same half; None where no
    interval of throughput is known.
    """
    if not all("throughput" in bid.worth.factors for bid in (one, other)):
        return None
    draws = stream(seed, 0, "model error")
    common = draws.standard_normal(DRAWS)
    first, second = (_usd_per_h(bid, common, draws) for bid in (one, other))
    return float(np.mean(first < second) + np.mean(first == second) / 2)


def _usd_per_h(bid: Bid, common: Floats, draws: np.random.Generator) -> Floats:
    low, high = (np.log(end) / TENTH_PERCENTILE for end in bid.worth.factors["throughput"])
    spread = (high - low) / 2
    shared = min(1.0, bid.worth.common_sd / spread) if spread > 0 else 0.0
    z = shared * common + np.sqrt(1 - shared**2) * draws.standard_normal(DRAWS)
    speed = np.exp(np.where(z > 0, z * high, -z * low))
    needed = np.maximum(1.0, np.ceil((bid.replicas - draws.random(DRAWS)) / speed))
    return np.asarray(bid.usd_per_h * needed / bid.replicas)
