"""How far real kernels are from the datasheet: data/steptime.yaml."""

from pathlib import Path

from sim.catalog.gpu import Gpu
from sim.catalog.link import Link
from sim.catalog.value import Value
from sim.spec import Spec
from sim.yamlio import read


class Efficiency(Spec):
    """What large matrix products reach of a GPU's dense peak, and reading large weights of its bandwidth."""

    compute: Value
    memory: Value


class AllReduceFactors(Spec):
    """All-reduce time inside a serving engine against the link's measured curve."""

    other: Value
    """Where neither the link nor the GPU is named: PCIe in general."""
    links: dict[str, Value]
    """By link id: links that are the same in every host (NVLink)."""
    gpus: dict[str, Value]
    """By GPU id: the usual hosts of a card whose link is not named."""


class Coefficients(Spec):
    """The constants of the roofline step time, all of them measured or fitted."""

    gpus: dict[str, Efficiency]
    """By GPU id: cards with kernel measurements."""
    architectures: dict[str, Efficiency]
    """By `Gpu.architecture`: cards without."""
    geforce: dict[str, Efficiency]
    """By `Gpu.architecture`: consumer cards without, whose halved tensor rate is easier to reach."""
    other: Efficiency
    """Everything else."""
    gemm_exponent: Value
    """p in (C^p + M^p)^(1/p): 1 adds compute and memory time, infinity takes the larger."""
    serving_compute_time_factor: Value
    """Compute time inside a server against the same kernels alone."""
    prefill_attention_efficiency: Value
    """Share of the matrix products' rate that prefill attention reaches."""
    allreduce_time_factor: AllReduceFactors
    pipeline_time_factor_per_doubling: Value
    """Stage time against an even split, for each doubling of pipeline_parallel_size."""

    def efficiency(self, gpu: Gpu) -> Efficiency:
        """The nearest statement about *gpu*: its own, its architecture's, or everybody's."""
        family = self.geforce if gpu.geforce else self.architectures
        return self.gpus.get(gpu.id) or family.get(gpu.architecture) or self.other

    def allreduce_factor(self, gpu: Gpu, link: Link) -> Value:
        """The nearest statement about all-reduces between *gpu* cards over *link*."""
        factors = self.allreduce_time_factor
        return factors.links.get(link.id) or factors.gpus.get(gpu.id) or factors.other


def load_coefficients(path: Path) -> Coefficients:
    """Read data/steptime.yaml.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if the file is not what it should be.
    """
    return Coefficients.model_validate(read(path).data)
