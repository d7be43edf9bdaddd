"""Matrix kernels: data/kernels/<id>.yaml, and what an engine's own do to some formats, shapes and cards."""

from sim.catalogue.gpu import Gpu
from sim.catalogue.value import Value
from sim.spec import Spec


class Kernel(Spec):
    """How far a kernel is from the ideal: compute time is FLOP / peak, weight time is stored bytes / bandwidth.

    The factors multiply times that already carry the GPU's own efficiency: 1 is as good as its dense 16-bit kernels.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    compute_time_factor: Value
    graphics_compute_time_factor: Value | None = None
    """Arithmetic on graphics cards of the Blackwell family, where it is not that of its server cards."""
    server_blackwell_compute_factor: Value | None = None
    """Multiplies `compute_time_factor` of dense products on B200, B300 and their kin; None: 1."""
    weight_time_factor: Value
    moe_compute_time_factor: Value
    """Grouped matrix products over experts, on top of `compute_time_factor`."""
    moe_weight_time_factor: Value
    """Reading expert weights, on top of `weight_time_factor`."""


class SlowCards(Spec):
    """Cards whose memory the engine's kernels keep less busy than others'."""

    gpus: tuple[str, ...]
    """Beginnings of GPU ids."""
    factor: Value
    """On the time to read weights."""

    def holds(self, gpu: Gpu) -> bool:
        """Whether *gpu* is one of them."""
        return gpu.id.startswith(self.gpus)


class SlowWeights(Spec):
    """A format whose dense weights the engine's kernels read more slowly on graphics cards of the Blackwell family."""

    kernel: str
    """Its id in data/kernels."""
    factor: Value
    """On the time to read weights."""


class SlowProducts(Spec):
    """A format in which the engine's dense products take longer on B200, B300 and their kin than elsewhere."""

    kernel: str
    """Its id in data/kernels."""
    factor: Value
    """On the time of their arithmetic."""


class FastExperts(Spec):
    """Grouped products that the engine runs with faster kernels on B200, B300 and their kin than it has for others."""

    kernel: str
    """Their id in data/kernels."""
    versions: str
    """Releases that do."""
    factor: Value
    """On the time of their arithmetic."""


class TunedTiles(Spec):
    """Shapes of grouped products that an engine's release carries tuned tiles for."""

    experts: int
    """On a GPU."""
    widths: tuple[int, ...] = ()
    """Inner widths of an expert on a GPU; none: all."""
    gpus: tuple[str, ...]
    """Beginnings of GPU ids."""

    def holds(self, gpu: Gpu, experts: int, width: float) -> bool:
        """Whether *experts* of that *width* on *gpu* are among them."""
        return experts == self.experts and gpu.id.startswith(self.gpus) and (not self.widths or width in self.widths)


class DefaultTiles(Spec):
    """Grouped products over experts whose shape nobody tuned for the card: the tiles are small for any shape."""

    kernel: str
    """The experts' format, by its id in data/kernels."""
    architectures: tuple[str, ...]
    """`Gpu.architecture`, on which that was measured to matter."""
    factor: Value
    """On the time of their arithmetic, against tuned tiles."""
    tuned: tuple[TunedTiles, ...]
    """Which do not have them."""
