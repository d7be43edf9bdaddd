"""Whether a pool runs what its owner has calibrated: the same model in the same layout, at a load near the runs."""

from dataclasses import dataclass

from sim.scenario.resolving.bind import BoundPool
from sim.steptime import OwnRuns

SERVER = ("model", "quantization", "engine", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
SIXTEEN_BIT, PLAIN_KERNEL = "bf16", "dense-16bit"
LEAST_RUNS = 2
"""What a calibration on fewer loads is worth at others is not known."""
NEAR_SEQUENCES, NEAR_PROMPT = 4.0, 2.0
"""Loads are near within these factors: those of the campaigns that the intervals were made of."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Runs of a pool's own server that its calibration was fitted to."""

    runs: OwnRuns

    def near(self, sequences: float | None, prompt: float | None) -> bool:
        """Whether the runs tell of this load: *sequences* in flight, mean *prompt* [tokens]; None: not known yet."""
        return (
            self.runs.runs >= LEAST_RUNS
            and _within(sequences, self.runs.sequences, NEAR_SEQUENCES)
            and _within(prompt, self.runs.prompt, NEAR_PROMPT)
        )


def _within(value: float | None, ends: tuple[float, float] | None, factor: float) -> bool:
    return value is None or (ends is not None and ends[0] / factor <= value <= ends[1] * factor)


def server_of(bound: BoundPool) -> tuple[object, ...]:
    """The values of SERVER that a pool has; weights of 16 bits are the same server, whatever they are called."""
    model, quantization, layout = bound.model, bound.quantization, bound.layout
    stored = quantization.id if quantization else ""
    format_ = SIXTEEN_BIT if quantization and quantization.kernel == PLAIN_KERNEL else stored
    ids = (model.id if model else "", format_, bound.engine.id)
    return *ids, layout.tensor_parallel_size, layout.pipeline_parallel_size, layout.data_parallel_size


def calibrated(bound: BoundPool) -> Calibrated | None:
    """The runs of *bound*'s own server; None where its calibration has none."""
    known = bound.calibration.measured if bound.calibration else ()
    here = server_of(bound)
    found = (runs for runs in known if tuple(getattr(runs, name) for name in SERVER) == here)
    return next((Calibrated(runs) for runs in found), None)
