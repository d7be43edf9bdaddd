"""The switch by which tests search capacities at the horizons that scenarios state."""

from sim.study import capacity


def keep_stated_horizons() -> None:
    """Lengthen no horizon in this process: most tests need any capacity, and a long run takes many times as long."""
    capacity.can_be_lengthened = lambda _: False
