"""Kubernetes' limits on what a recommendation may do: stabilisation windows and scaling policies.

Source: "Configurable scaling behavior" of the HorizontalPodAutoscaler's documentation (autoscaling/v2).
"""

from math import ceil
from typing import Literal

from pydantic import Field

from sim.autoscaling.protocol import ROUNDED
from sim.spec import Count, Positive, Spec


class RatePolicy(Spec):
    """At most so many replicas more or fewer than at the beginning of a period."""

    type: Literal["pods", "percent"]
    value: Count
    """Replicas, or percent of those at the beginning of the period."""
    period_s: Positive


class Rules(Spec):
    """Scaling policies of one direction."""

    policies: tuple[RatePolicy, ...] = Field(min_length=1)
    select: Literal["max", "min", "disabled"] = "max"
    """The policy that allows the largest or the smallest change; disabled: no change in this direction."""


UP = Rules(policies=(RatePolicy(type="percent", value=100, period_s=15), RatePolicy(type="pods", value=4, period_s=15)))
DOWN = Rules(policies=(RatePolicy(type="percent", value=100, period_s=15),))


class Behavior:
    """Turns recommendations into replicas: first the stabilisation windows, then the policies, as the HPA does."""

    def __init__(self, up_s: float, down_s: float, up: Rules = UP, down: Rules = DOWN) -> None:
        """*up_s* and *down_s* are the stabilisation windows [s]."""
        self._up_s, self._down_s = up_s, down_s
        self._up, self._down = up, down
        self._recommended: list[tuple[float, int]] = []
        self._changes: list[tuple[float, int]] = []

    def applied(self, now: float, replicas: int, recommended: int, least: int, most: int) -> int:
        """What *recommended* comes to for a pool of *replicas*, between *least* and *most*."""
        wanted = self._limited(now, replicas, self._stabilised(now, replicas, recommended), least, most)
        if wanted != replicas:
            self._changes.append((now, wanted - replicas))
        return wanted

    def _stabilised(self, now: float, replicas: int, recommended: int) -> int:
        """The lowest recommendation of the window on the way up, the highest on the way down."""
        if not self._recommended:
            self._recommended.append((now, replicas))
        keep_s = max(self._up_s, self._down_s)
        self._recommended = [one for one in self._recommended if one[0] > now - keep_s or one[0] == now]
        up = min([recommended, *(one for at_s, one in self._recommended if at_s > now - self._up_s)])
        down = max([recommended, *(one for at_s, one in self._recommended if at_s > now - self._down_s)])
        self._recommended.append((now, recommended))
        return min(max(replicas, up), down)

    def _limited(self, now: float, replicas: int, wanted: int, least: int, most: int) -> int:
        longest_s = max(rule.period_s for rules in (self._up, self._down) for rule in rules.policies)
        self._changes = [one for one in self._changes if one[0] > now - longest_s]
        if wanted > replicas:
            return min(wanted, most, max(replicas, self._furthest(self._up, 1, now, replicas)))
        if wanted < replicas:
            return max(wanted, least, min(replicas, self._furthest(self._down, -1, now, replicas)))
        return wanted

    def _furthest(self, rules: Rules, sign: int, now: float, replicas: int) -> int:
        """How far *rules* let *replicas* go, up with *sign* 1, down with -1; a part of a replica counts whole."""
        if rules.select == "disabled":
            return replicas
        found = []
        for rule in rules.policies:
            began = replicas - self._changed(now, rule.period_s)
            change = rule.value if rule.type == "pods" else began * rule.value / 100
            found.append(ceil(round(sign * began + change, ROUNDED)))
        return sign * (max(found) if rules.select == "max" else min(found))

    def _changed(self, now: float, period_s: float) -> int:
        """Replicas added less those removed in the last *period_s*."""
        return sum(change for at_s, change in self._changes if at_s > now - period_s)
