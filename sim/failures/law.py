"""How long a component works and how long it is under repair, as chance has it."""

from dataclasses import dataclass
from math import gamma, log, log1p, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np

RepairLaw = Literal["exponential", "fixed", "lognormal"]
LEAST = 2.0**-60
"""In place of a draw of 0, which no inverse distribution takes."""


@dataclass(frozen=True, slots=True)
class Law:
    """Times of one kind of component."""

    mtbf_s: float
    """Mean time from being repaired to the next failure [s]."""
    repair_s: float
    """Mean time of a repair, a missing part left out [s]."""
    shape: float = 1.0
    """Weibull shape of the time to the next failure; 1 is the exponential law."""
    repair: RepairLaw = "exponential"
    repair_cv: float = 1.0
    """Standard deviation over mean, of lognormal repairs."""
    part_share: float = 0.0
    """Share of repairs that wait for a part."""
    part_s: float = 0.0
    """How long they wait [s]."""

    def outage(self, rng: np.random.Generator) -> tuple[float, float]:
        """Time to the next failure and length of its repair [s].

        Three draws, whatever the law: another mean or shape meets the same luck.
        """
        working, broken, part = np.maximum(rng.random(3), LEAST).tolist()
        waits_s = self.part_s if part < self.part_share else 0.0
        return self.up_s(working), self.down_s(broken) + waits_s

    def up_s(self, chance: float) -> float:
        """Quantile *chance* of the time to the next failure [s].

        >>> round(Law(mtbf_s=100.0, repair_s=1.0).up_s(0.5), 3)
        69.315
        """
        scale_s = self.mtbf_s / gamma(1 + 1 / self.shape)
        return float(scale_s * (-log1p(-chance)) ** (1 / self.shape))

    def down_s(self, chance: float) -> float:
        """Quantile *chance* of a repair's length [s]."""
        if self.repair == "fixed":
            return self.repair_s
        if self.repair == "exponential":
            return -self.repair_s * log1p(-chance)
        variance = log1p(self.repair_cv**2)
        deviations = NormalDist().inv_cdf(min(chance, 1 - LEAST))
        if not self.repair_s:
            return 0.0
        return float(np.exp(log(self.repair_s) - variance / 2 + sqrt(variance) * deviations))

    @property
    def availability(self) -> float:
        """Share of time that the component works in the long run, failures noticed and repairs begun at once."""
        return self.mtbf_s / (self.mtbf_s + self.repair_s + self.part_share * self.part_s)
