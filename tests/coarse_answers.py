"""The switch by which tests search capacities and prices with as few simulations and bills as an answer needs."""

from sim.scenario.sections.precision import FIRST_REPLICATIONS
from sim.study import breakeven, breakeven_costs, capacity


def answer_coarsely() -> None:
    """Make the answers of this process coarse: most tests need any capacity, curve or tipping point.

    A capacity is that of the stated horizon and of few replications, costs are simulated at three utilisations, and a
    tipping point is known to one part in ten thousand.
    """
    capacity.can_be_lengthened = lambda _: False
    capacity.MOST_OF_CAPACITY = FIRST_REPLICATIONS
    breakeven_costs.UTILISATIONS = (0.15, 0.5, 1.0)
    breakeven.LOADS_SHOWN = 12
    breakeven.HALVINGS = 12
