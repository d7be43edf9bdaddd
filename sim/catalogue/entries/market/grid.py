"""An electricity grid."""

from sim.catalogue.value import Value
from sim.spec import Spec


class Grid(Spec):
    """How much greenhouse gas its electricity stands for."""

    id: str
    """ISO 3166 code of the country, lower case."""
    name: str
    aliases: tuple[str, ...] = ()
    g_per_kwh: Value
    """Mean over a year [g CO2e/kWh]."""
