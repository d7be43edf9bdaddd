"""Cold start of a replica: the stages from power-on to the first request, and their durations."""

from sim.coldstart.start import (
    PEER,
    ColdStart,
    ColdStartFigures,
    ReplicaStart,
    StartingReplica,
    StartStage,
    StartTransfer,
    StartUnknown,
    fixed_start,
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
    "fixed_start",
    "load_figures",
    "start_of",
]
