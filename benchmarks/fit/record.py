"""The steps that a simulated row took, in so few groups that its times can be worked out again for other parameters.

Which batches a closed loop or a burst forms hardly depends on how long the steps last, so a row is simulated once and
its steps are timed again for every trial of the fit; after the fit all rows are simulated afresh.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

from sim.engine.protocol import ReplicaEngine
from sim.engine.schedulers.rank import Rank
from sim.fleet import RunningFleet
from sim.records import Batch, FleetLog, Meters, Request
from sim.scenario.resolving.resolved import CasePlan

Floats = NDArray[np.float64]

FIELDS = (
    "decode_seqs", "sampled_seqs", "kv_tokens", "windowed_kv_tokens", "prefill_seqs", "prefill_tokens",
    "prefill_context_tokens", "prefill_attention_pairs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Steps:
    """Groups of like steps: the mean of every field of Batch, and how much each group counts in the three metrics."""

    mean: dict[str, Floats]
    steps: Floats
    """Steps in the group: their times add up to the run."""
    decodes: Floats
    """Tokens decoded in them: TPOT is the mean step weighted by these."""
    prompts: Floats
    """Prompt chunks in them."""

    @property
    def tokens(self) -> Floats:
        """New tokens per step."""
        return self.mean["decode_seqs"] + self.mean["prefill_tokens"]


class Recorder:
    """An engine that notes the steps which another one takes."""

    def __init__(self, engine: ReplicaEngine) -> None:
        self._engine = engine
        self._groups: dict[tuple[int, int], list[float]] = {}

    def offer(self, request: Request, now: float) -> bool:
        """See `Engine.offer`."""
        return self._engine.offer(request, now)

    def plan(self, now: float) -> float:
        """See `Engine.plan`."""
        return self._engine.plan(now)

    def advance(self) -> list[Request]:
        """See `Engine.advance`."""
        for rank, steps in _stepping(self._engine):
            self._note(rank.batch, steps)
        return self._engine.advance()

    def _note(self, batch: Batch, steps: int) -> None:
        prefill = round(4 * log2(batch.prefill_tokens)) if batch.prefill_tokens else -1
        sums = self._groups.setdefault((batch.decode_seqs, prefill), [0.0] * (len(FIELDS) + 1))
        for i, name in enumerate(FIELDS):
            sums[i] += steps * getattr(batch, name)
        sums[FIELDS.index("kv_tokens")] += batch.decode_seqs * steps * (steps - 1) / 2
        sums[-1] += steps

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`."""
        return self._engine.meters(now)

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return self._engine.waiting()

    def groups(self) -> Iterable[list[float]]:
        """Sums over the steps of each group: FIELDS, then the steps."""
        return self._groups.values()


def _stepping(engine: ReplicaEngine) -> list[tuple[Rank, int]]:
    """The ranks that the engine is about to advance, with the steps they take."""
    lanes = getattr(engine, "_lanes", None)
    if lanes is not None:
        return [(min(lanes, key=lambda lane: lane.end_s).rank, 1)]
    stepping = getattr(engine, "_stepping", None)
    if stepping is not None:
        return [(rank, engine._steps) for rank, _ in stepping[:1]]  # type: ignore[attr-defined]
    return [(engine._rank, engine._steps)]  # type: ignore[attr-defined]


def simulate(plan: CasePlan) -> tuple[FleetLog, Steps]:
    """Runs *plan* once; what happened, and the steps of all replicas together."""
    fleet = RunningFleet(plan)
    recorders = [Recorder(replica.engine) for replica in fleet._replicas]
    for replica, recorder in zip(fleet._replicas, recorders, strict=True):
        replica.engine = recorder
    log = fleet.run()
    sums = np.array([group for recorder in recorders for group in recorder.groups()], dtype=float)
    steps = sums[:, -1]
    mean = {name: sums[:, i] / steps for i, name in enumerate(FIELDS)}
    return log, Steps(mean, steps, steps * mean["decode_seqs"], steps * mean["prefill_seqs"])
