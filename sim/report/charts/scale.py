"""The range of an axis and its round numbers."""

from collections.abc import Sequence
from math import floor, inf, isfinite, log10

import numpy as np
from numpy.typing import NDArray

from sim.report.charts.panels import Limit, Panel

DECADE = 10.0


class Scale:
    """The range of one axis: logarithmic where it spans more than a decade (unless *linear*), else from zero (if
    *anchored*).
    """

    def __init__(self, values: Sequence[float], anchored: bool, share: bool = False, linear: bool = False) -> None:
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        self.most = 1.0 if share else inf
        self.log = not (share or linear) and low > 0 and high > DECADE * low
        if share:
            self.low, self.high = 0.0, 1.04
        elif self.log:
            margin = high / low
            self.low, self.high = low / margin**0.1, high * margin**0.06
        elif anchored or high == low:
            self.low, self.high = min(0.0, low), 1.1 * high if high > 0 else 1.0
        else:
            margin = 0.06 * (high - low)
            self.low, self.high = low - margin, high + margin

    def ticks(self) -> list[float]:
        """Round numbers within the range: 1, 2, 5 of every decade, or even steps."""
        if self.log:
            decades = range(floor(log10(self.low)), floor(log10(self.high)) + 1)
            fine = [m * 10.0**d for d in decades for m in (1, 2, 5) if self.low <= m * 10.0**d <= self.high]
            coarse = [10.0**d for d in decades if self.low <= 10.0**d <= self.high]
            return fine if len(fine) <= 8 or len(coarse) < 2 else coarse
        step = 10.0 ** floor(log10((self.high - self.low) / 4))
        step *= next(m for m in (1, 2, 2.5, 5, 10) if (self.high - self.low) / (m * step) <= 6)
        first = int(np.ceil(self.low / step - 1e-9))
        return [round(k * step, 12) for k in range(first, int(np.floor(self.high / step + 1e-9)) + 1)]

    def shares(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Where *values* lie on the axis: 0 at its low end, 1 at its high end."""
        low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
        placed = np.log(np.where(values > 0, values, np.nan)) if self.log else values
        return np.asarray((placed - low) / (high - low))

    def value(self, share: float) -> float:
        """What lies there."""
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + share * (self.high - self.low)


def core(panel: Panel, which: str, limit: Limit | None) -> list[float]:
    """The values that set a range: the limit and all that are finite and steady; failing those, all that are finite."""
    steady, finite = [], []
    for curve in panel.curves:
        values = getattr(curve, which)
        flags = curve.steady or (True,) * len(values)
        finite += [value for value in values if isfinite(value)]
        steady += [value for value, flag in zip(values, flags, strict=True) if isfinite(value) and flag]
        if which == "x" and panel.x_ticks:
            steady += [value for value in values if isfinite(value)]
    return (steady or finite) + ([limit.at] if limit is not None else [])
