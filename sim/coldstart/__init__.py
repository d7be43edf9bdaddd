"""What a replica goes through from being switched on to its first request, and how long each part takes."""

from sim.coldstart.start import (
    PEER,
    ColdStart,
    Figures,
    Loaded,
    Stage,
    Start,
    StartUnknown,
    Transfer,
    at_once,
    load_figures,
    start_of,
)

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
