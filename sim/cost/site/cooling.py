"""Cooling plant with its own electricity, where the PUE does not count it."""

from sim.spec import Positive, Spec


class Cooling(Spec):
    """Chillers that are billed beside a PUE for power distribution alone."""

    cop: Positive
    """Coefficient of performance: heat removed per unit of electricity, about 3 to 6 for chillers."""

    @property
    def per_server_energy(self) -> float:
        """Electricity of the plant per unit that the servers draw, all of which becomes heat.

        >>> Cooling(cop=4).per_server_energy
        0.25
        """
        return 1 / self.cop
