"""Matrix kernels: data/kernels/<id>.yaml."""

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
