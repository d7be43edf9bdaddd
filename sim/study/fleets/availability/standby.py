"""Spares that stand by: what a search of fleets gives to a pool that has them."""

from dataclasses import dataclass
from typing import Any

from sim.scenario.sections.size import Size


@dataclass(frozen=True, slots=True)
class StandBy:
    """Warm or cold spares beside the replicas that serve."""

    kind: str
    count: int
    machine: str
    """Key of the hardware of the replicas without them."""
    pool: dict[str, Any]
    """Keys of a pool that has them."""

    @property
    def words(self) -> str:
        """In the name of a fleet: `1 warm`."""
        return f"{self.count} {self.kind}"

    @classmethod
    def of(cls, size: Size, kind: str, count: int, machine: str) -> "StandBy":
        """*count* spares of *kind* under the failures of *size*, which states both."""
        assert size.failures is not None
        assert size.spares is not None
        spares: dict[str, Any] = {"count": count, "kind": kind}
        if kind == "warm":
            spares["takeover_s"] = size.spares.takeover_s
        pool: dict[str, Any] = {"failures": _as_data(size.failures) | {"spares": spares}}
        if size.cold_start is not None:
            pool["cold_start"] = _as_data(size.cold_start)
        return cls(kind, count, machine, pool)


def _as_data(section: Any) -> dict[str, Any]:
    data: dict[str, Any] = section.model_dump(mode="json", exclude_unset=True)
    return data
