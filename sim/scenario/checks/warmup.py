"""What a warm-up needs, which no single key shows."""

from collections.abc import Iterator

from sim.scenario.experiment import Experiment
from sim.scenario.reading.errors import Complaint


def warmup_complaints(scenario: Experiment) -> Iterator[Complaint]:
    """A warm-up that is looked for where nothing settles."""
    if scenario.warmup_s == "auto" and not scenario.workload.stationary:
        text = "auto looks for a steady state, and a trace, a burst or a profile has none; give seconds"
        yield Complaint(("warmup_s",), text)
    elif scenario.warmup_s == "auto" and scenario.horizon_s is None:
        yield Complaint(("warmup_s",), "auto looks for a steady state, and without horizon_s the run ends in a drain")
