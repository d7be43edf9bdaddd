"""What a prediction is worth: how near the measurements are that it rests on, and how far a real server may be from it.

`fleet_worth` answers for a fleet of a scenario, `point_worths` for points of its sweep, `worst` for several.
"""

from sim.study.fidelity.marks.chance import Bid, Chance, chance_cheaper
from sim.study.fidelity.marks.distance import MARKS, Mark, Setting
from sim.study.fidelity.marks.interval import METRICS, Worth
from sim.study.fidelity.marks.of_fleet import fleet_worth, point_worths, setting_of, worst

__all__ = [
    "MARKS", "METRICS", "Bid", "Chance", "Mark", "Setting", "Worth", "chance_cheaper", "fleet_worth", "point_worths",
    "setting_of", "worst",
]  # fmt: skip
