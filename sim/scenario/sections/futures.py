"""Draws of all that is uncertain: their keys are in `reading/distribution.py`, which reads distributions anywhere."""

from sim.scenario.reading.distribution import Futures
from sim.scenario.sections.section import Section

FUTURES: Section[Futures] = Section(
    repriced=True,
    of_fleets=True,
    example="""\
# futures: {draws: 2000}      # any price, any term and the load may be {triangular: [low, mode, high], note: why},
#   {uniform: [low, high]}, {normal: [mean, sd]} or {lognormal: [mean, cv]} in place of a number""",
)
