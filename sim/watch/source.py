"""Source of a watched fleet's series: what `Watch` reads, from a Prometheus server or from OTLP files."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from sim.benchdata.served.scrapes import Series
from sim.message import Message

POWER = "DCGM_FI_DEV_POWER_USAGE"
"""Gauge of NVIDIA's DCGM exporter: power of each GPU [W]."""
COMPLETED = "e2e_request_latency_seconds_count"
"""Counter of completed requests, after the engine's prefix; its first sample begins the history."""
Points = Mapping[float, float]
"""Samples of a series: Unix time [s] -> value."""


class RestartedPoints(dict[float, float]):
    """Samples of a counter that restarted at the times *restarts*, whether or not its value fell."""

    def __init__(self, points: Points, restarts: Iterable[float]) -> None:
        super().__init__(points)
        self.restarts = frozenset(restarts)


class SourceError(Exception):
    """Error of a source that cannot be read."""

    code = 2
    """Exit code of the command."""
    skipped = False
    """True if the next reading continues after what is wrong."""


class LacksMetrics(SourceError):
    """Error for a source that can be read, but has none of the series that are read."""


class MixedSeries(SourceError):
    """Error for series of several engines or models, of which one has to be chosen."""


class Source(Protocol):
    """Series of a fleet, sampled at a regular interval."""

    @property
    def shown(self) -> str:
        """Address or file, for messages."""

    @property
    def match(self) -> str:
        """Label matchers of all series."""

    def now_s(self) -> float:
        """Return the time until which the source has samples [Unix s]. Raises SourceError."""

    def clock_notes(self, now_s: float, here_s: float) -> list[str]:
        """Return notes on a difference of the source's time *now_s* from this machine's clock, *here_s* [Unix s]."""

    def engine_series(self, start_s: float, end_s: float, step_s: float, every: bool = True) -> dict[Series, Points]:
        """Return the series of vLLM or SGLang from *start_s* to *end_s*, sampled each *step_s*.

        Without *every*, the buckets of all histograms but TTFT are left out. Raises SourceError.
        """

    def gpu_power(self, start_s: float, end_s: float, step_s: float) -> Sequence[Points]:
        """Return the power of each GPU [W]. Raises SourceError."""

    def first_s(self, start_s: float, end_s: float) -> float | None:
        """Return the time of the first sample in a span, to an hour [Unix s]; None without one. Raises SourceError."""


def refuse_mixture(series: Iterable[Series], shown: str) -> None:
    """Raise MixedSeries where *series* of the server or file *shown* are of several engines or models."""
    engines, models = set(), set()
    for name, labels in series:
        engines.add(name.partition(":")[0])
        models |= {value for label, value in labels if label == "model_name" and value}
    if len(engines) > 1:
        raise MixedSeries(
            Message("{url}: has metrics of vLLM and of SGLang: choose one with --match 'job=\"...\"'", shown)
        )
    if len(models) > 1:
        raise MixedSeries(
            Message(
                "{url}: has metrics of several models ({names}): choose one with --match 'model_name=\"{first}\"'",
                shown,
                ", ".join(sorted(models)),
                min(models),
            )
        )
