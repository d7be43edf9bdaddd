"""Matrix kernels: data/kernels/<id>.yaml."""

from sim.catalogue.value import Value
from sim.spec import Spec


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
