"""Recorded steps of simulated rows, in few groups from which times follow for other parameters.

The batches of a closed loop or burst hardly depend on the step time, so a row is simulated once and its steps are
timed again for every trial of the fit; after the fit all rows are simulated again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.protocol import ReplicaEngine
from sim.fleet.fleet import RunningFleet
from sim.fleet.pool import IntakeEngine
from sim.records import Batch, FleetLog, Request
from sim.scenario.resolving.resolved import CasePlan

Floats = NDArray[np.float64]

FIELDS = (
    "decode_seqs", "sampled_seqs", "kv_tokens", "windowed_kv_tokens", "prefill_seqs", "prefill_tokens",
    "prefill_context_tokens", "prefill_attention_pairs", "standing_seqs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Steps:
    """Groups of similar steps: mean of every field of Batch, and weights in the three metrics."""

    mean: dict[str, Floats]
    steps: Floats
    """Number of steps in each group; their times add up to the run."""
    decodes: Floats
    """Tokens decoded in each group, the weights of the mean step in TPOT."""
    prompts: Floats
    """Prompt chunks in each group."""

    @property
    def tokens(self) -> Floats:
        """New tokens per step."""
        return self.mean["decode_seqs"] + self.mean["prefill_tokens"]


class Recorder:
    """Engine wrapper that records the steps of another engine."""

    def __init__(self, engine: ReplicaEngine) -> None:
        self._engine = engine
        self._groups: dict[tuple[int, int], list[float]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def advance(self) -> list[Request]:
        """See `Engine.advance`."""
        for batch, steps in _ending(self._engine):
            self._note(batch, steps)
        return self._engine.advance()

    def _note(self, batch: Batch, steps: int) -> None:
        group = (round(2 * log2(1 + batch.decode_seqs)), round(2 * log2(1 + batch.prefill_tokens)))
        sums = self._groups.setdefault(group, [0.0] * (len(FIELDS) + 1))
        for i, name in enumerate(FIELDS):
            sums[i] += steps * getattr(batch, name)
        sums[FIELDS.index("kv_tokens")] += batch.decode_seqs * steps * (steps - 1) / 2
        sums[-1] += steps

    def groups(self) -> Iterable[list[float]]:
        """Return sums over the steps of each group: FIELDS, then the number of steps."""
        return self._groups.values()


def _ending(engine: ReplicaEngine) -> list[tuple[Batch, int]]:
    """Return the batches that the engine is about to advance, with the number of steps."""
    one: Any = engine
    if hasattr(engine, "_runs"):  # formed ahead; of ranks that step together the fullest has most to do
        runs = one._runs  # the end of a leap; elsewhere only its last step begins
        busiest = [max((flight.batch for flight in runs.working()), key=_tokens)] if runs is not None else []
        return [(batch, runs.steps) for batch in busiest if runs.closed]
    if hasattr(engine, "_batches_in_flight"):
        return [(one._batches_in_flight[0].batch, 1)]
    if hasattr(engine, "_lanes"):
        return [(min(one._lanes, key=lambda lane: lane.end_s).rank.batch, 1)]
    return [(rank.batch, one._steps) for rank in one._stepping[:1]]


def _tokens(batch: Batch) -> int:
    return batch.decode_seqs + batch.prefill_tokens


def _behind_intake(replica: Any) -> Any:
    """Return the caller of the engine: the replica, or the intake of an API server."""
    return replica.engine if isinstance(replica.engine, IntakeEngine) else replica


def simulate(plan: CasePlan) -> tuple[FleetLog, Steps]:
    """Run *plan* once. Return its log and the steps of all replicas together."""
    fleet = RunningFleet(plan)
    recorders = [Recorder(_behind_intake(replica).engine) for replica in fleet._replicas]
    for replica, recorder in zip(fleet._replicas, recorders, strict=True):
        _behind_intake(replica).engine = recorder
    log = fleet.run()
    sums = np.array([group for recorder in recorders for group in recorder.groups()], dtype=float)
    steps = sums[:, -1]
    mean = {name: sums[:, i] / steps for i, name in enumerate(FIELDS)}
    return log, Steps(mean, steps, steps * mean["decode_seqs"], steps * mean["prefill_seqs"])
