"""What a replica goes through from being switched on to its first request, and how long each part takes."""

from sim.coldstart.figures import Figures, load_figures
from sim.coldstart.physics import PEER, Loaded, Start, StartUnknown, start_of
from sim.coldstart.spec import ColdStart
from sim.coldstart.stages import Stage, Transfer, at_once

__all__ = [
    "PEER",
    "ColdStart",
    "Figures",
    "Loaded",
    "Stage",
    "Start",
    "StartUnknown",
    "Transfer",
    "at_once",
    "load_figures",
    "start_of",
]
