"""An autoscaler of a user's own."""

from typing import Any

from sim.autoscaling.protocol import Bounds, Gauge, Scaler
from sim.registry import Registered
from sim.spec import NonNegative, Positive

ALL: frozenset[Gauge] = frozenset(["outstanding", "running", "waiting", "requests_per_s", "gpu_busy", "kv_used"])


class RegisteredAutoscaling(Registered, Bounds):
    """A class with `wanted(seen)`, the number of replicas that the pool shall have; *seen* is a
    `sim.autoscaling.protocol.Seen`.
    """

    sync_period_s: Positive = 15.0
    """How often it decides."""
    longest_window_s: NonNegative = 300.0
    """How far back it may look at readings."""

    @property
    def period_s(self) -> float:
        """How often it decides [s]."""
        return self.sync_period_s

    @property
    def gauges(self) -> frozenset[Gauge]:
        """What has to be read of the replicas."""
        return ALL

    @property
    def keep_s(self) -> float:
        """How far back it looks at readings [s]."""
        return self.longest_window_s

    def start(self) -> Scaler:
        """The running autoscaler."""
        made: Any = self.made()
        return _Checked(made)


class _Checked:
    """A user's autoscaler whose answers are numbers of replicas."""

    def __init__(self, scaler: Any) -> None:
        self._scaler = scaler

    def wanted(self, seen: Any) -> int:
        """Its answer. Raises TypeError where that is no whole number."""
        answer = self._scaler.wanted(seen)
        if isinstance(answer, bool) or not isinstance(answer, int):
            name = type(self._scaler).__name__
            raise TypeError(f"autoscaler {name}: wanted returns a number of replicas, not {answer!r}")
        return answer
