"""What MLPerf's benchmarks of services run: data/mlperf.yaml."""

from pathlib import Path

from sim.batchtime import Precision
from sim.catalogue.value import Sourced, Value
from sim.spec import Positive, Spec
from sim.yamlio import read


class Benchmark(Sourced):
    """One benchmark, as submissions run it."""

    aliases: tuple[str, ...] = ()
    model: str
    """Id in data/models."""
    precisions: tuple[Precision, ...]
    """The first that the accelerator has is taken."""
    samples: Positive = 1.0
    """The model's samples in one of the benchmark's."""
    batch: Positive
    """The benchmark's samples in a batch, where no latency limits it."""
    server_limit_s: Positive | None = None
    """99 % of the queries of a Server run must be answered within it."""
    server_share: Value
    """Server rate against the batches that the limit allows, one after the other without a gap."""


class Benchmarks(Spec):
    """All benchmarks of services, and what submissions have in common."""

    benchmarks: dict[str, Benchmark]
    power_limited_speed: Value
    """Speed under a power cap (MaxQ) against the same cards without."""

    def find(self, name: str) -> Benchmark | None:
        """The benchmark called *name*; None for one that is no service."""
        wanted = name.strip().lower()
        for key, one in self.benchmarks.items():
            if wanted == key or wanted in one.aliases:
                return one
        return None


def load_benchmarks(path: Path) -> Benchmarks:
    """Read data/mlperf.yaml.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if the file is not what it should be.
    """
    return Benchmarks.model_validate(read(path).data)
