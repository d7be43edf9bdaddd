"""Public names of `import sim`."""

from sim.api import questions
from sim.api.catalog import catalog
from sim.api.check import CheckResult, JobCheck, check
from sim.api.errors import (
    BenchdataError,
    CatalogError,
    FolderBusy,
    FolderRefused,
    FolderUnreachable,
    Infeasible,
    ScenarioErrors,
    UnknownId,
    WorkerLost,
    YamlError,
)
from sim.api.questions import *  # noqa: F403
from sim.api.register import register
from sim.api.run import JobRun, Run, run
from sim.api.simulate import simulate
from sim.language import speaking
from sim.records import Batch, Leap, Request
from sim.scenario.schema import Scenario

__all__ = [
    "Batch",
    "BenchdataError",
    "CatalogError",
    "CheckResult",
    "FolderBusy",
    "FolderRefused",
    "FolderUnreachable",
    "Infeasible",
    "JobCheck",
    "JobRun",
    "Leap",
    "Request",
    "Run",
    "Scenario",
    "ScenarioErrors",
    "UnknownId",
    "WorkerLost",
    "YamlError",
    "catalog",
    "check",
    "register",
    "run",
    "simulate",
    "speaking",
]
__all__ += questions.__all__
