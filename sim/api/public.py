"""Everything that `import sim` offers."""

from sim.api.catalog import catalog
from sim.api.check import CheckResult, JobCheck, check
from sim.api.errors import (
    BenchdataError,
    CatalogError,
    FolderBusy,
    FolderRefused,
    Infeasible,
    ScenarioErrors,
    UnknownId,
    WorkerLost,
    YamlError,
)
from sim.api.questions import (
    BreakevenResult,
    CapacityResult,
    PlanResult,
    SensitivityResult,
    SizeResult,
    breakeven,
    capacity,
    plan,
    sensitivity,
    size,
)
from sim.api.register import register
from sim.api.run import JobRun, Run, run
from sim.api.simulate import simulate
from sim.language import speaking
from sim.records import Batch, Leap, Request
from sim.scenario.schema import Scenario

__all__ = [
    "Batch",
    "BenchdataError",
    "BreakevenResult",
    "CapacityResult",
    "CatalogError",
    "CheckResult",
    "FolderBusy",
    "FolderRefused",
    "Infeasible",
    "JobCheck",
    "JobRun",
    "Leap",
    "PlanResult",
    "Request",
    "Run",
    "Scenario",
    "ScenarioErrors",
    "SensitivityResult",
    "SizeResult",
    "UnknownId",
    "WorkerLost",
    "YamlError",
    "breakeven",
    "capacity",
    "catalog",
    "check",
    "plan",
    "register",
    "run",
    "sensitivity",
    "simulate",
    "size",
    "speaking",
]
