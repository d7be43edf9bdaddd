"""What a replica goes through from being switched on to its first request, and how long each part takes."""

from sim.coldstart.start import (
    PEER,
    ColdStart,
    ColdStartFigures,
    ReplicaStart,
    StartingReplica,
    StartStage,
    StartTransfer,
    StartUnknown,
    at_once,
    load_figures,
    start_of,
)

__all__ = [
    "PEER",
    "ColdStart",
    "ColdStartFigures",
    "ReplicaStart",
    "StartStage",
    "StartTransfer",
    "StartUnknown",
    "StartingReplica",
    "at_once",
    "load_figures",
    "start_of",
]
