"""Matrix kernels: data/kernels/<id>.yaml."""

from sim.catalogue.gpu import Gpu
from sim.catalogue.quantization import ComputeType
from sim.catalogue.value import Sourced, Value
from sim.spec import Spec


class KernelChoice(Sourced):
    """Kernel of routed experts that an engine runs by default, where the arithmetic depends on engine and card."""

    engines: tuple[str, ...]
    """Engines, without their releases."""
    vendors: tuple[str, ...] = ()
    """Vendors of GPUs; empty: all."""
    architectures: tuple[str, ...] = ()
    """Architectures of GPUs; empty: all."""
    quantizations: tuple[str, ...] = ()
    """Ids of weight formats; empty: all with this kernel."""
    compute: ComputeType
    """Arithmetic of the kernel."""
    measured_as: str = ""
    """Column `format` of the kernel in kernels/measured.csv; empty: not measured there."""
    overlaps: bool = False
    """True if the kernel computes while it reads weights: its rate alone contains the reading, which a step adds."""
    rereads: bool = False
    """True if each token reads the weights of its experts anew, so that memory limits prompts as it limits decoding."""

    def applies(self, engine: str, gpu: Gpu, quantization: str) -> bool:
        """Return whether *engine* runs this kernel for *quantization* on *gpu*."""
        return (
            engine in self.engines
            and (not self.vendors or gpu.vendor in self.vendors)
            and (not self.architectures or gpu.architecture in self.architectures)
            and (not self.quantizations or quantization in self.quantizations)
        )


class Kernel(Spec):
    """Deviation of a matrix kernel from the ideal times: FLOP / peak rate, and stored bytes / bandwidth.

    The factors multiply times that already include the GPU's own efficiency; 1 means as efficient as the GPU's dense
    16-bit kernels.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    compute_time_factor: Value
    graphics_compute_time_factor: Value | None = None
    """Factor on arithmetic time on graphics cards of the Blackwell family; None: `compute_time_factor`."""
    server_blackwell_compute_factor: Value | None = None
    """Factor on top of `compute_time_factor` for dense products on B200, B300 and related cards; None: 1."""
    weight_time_factor: Value
    moe_compute_time_factor: Value
    """Factor on top of `compute_time_factor` for grouped matrix products over experts."""
    moe_weight_time_factor: Value
    """Factor on top of `weight_time_factor` for reading expert weights."""
    chosen: tuple[KernelChoice, ...] = ()
    """Kernels of routed experts by engine, architecture and format; the first that applies counts."""
