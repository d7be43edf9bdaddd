"""Capacity, latency and cost simulator for fleets of GPUs that serve language models (gpufleet).

From Python (docs/python.md):

    run = sim.run("4x4090-vs-2xa100", {"workload.arrivals.rate_rps": 0.5})
    run.summary, run.plot("cost_vs_latency"), run.price({"site.electricity_usd_per_kwh": 0.3})

`capacity`, `size`, `sensitivity`, `breakeven`, `plan` and `check` take the same first two arguments; `catalog` holds
the sourced numbers, `simulate` is the engine alone, `register` adds a policy.

Reading guide. Start with these three files, in this order:

1. `case/run.py`: one case: a plan is resolved, a fleet is run, a ledger is computed.
2. `scenario/schema.py`: contents of a scenario file; `scenario/resolving/resolved.py`: the plan in which ids are
   replaced by sourced values.
3. `records.py`: the records that pass between the packages.

Then `engine/synchronous.py` for the steps of a replica, `steptime/roofline.py` for their durations, `cost/ledger.py`
for costs. Imports go one way only:

    {cli -> serve, agents, api} -> answers -> {jobs -> training} ->
        report -> study -> case -> fleet -> {engine, scenario}
    cli -> {claims -> {jobs, training}, watch -> fidelity -> training} -> answers
    scenario -> {workload steptime batchtime memory power routing batching cost} -> catalogue
    scenario -> {coldstart autoscaling failures} -> catalogue
    catalogue -> {validation -> registry -> spec, records} -> {csvio, yamlio, units, rng, decimals, native, otel}
    {csvio yamlio} -> {infile, message}
    engine -> {batching, records, units, rng, native}
    study -> benchdata -> catalogue
    {cli serve api answers report scenario} -> language -> message
    {cli agents answers study} -> build

To extend: a GPU, model or price is a file in data/; a policy is a class under `sim.register`, or a file in its part
(`routing/`, `batching/`, `steptime/`, `workload/`, `cost/`) and its name in the union of that part's `__init__.py`.
"""

import os
import sys
from functools import cache
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from typing import Any


class _Sources:
    """Finder of this package's modules by their Python sources, past compiled modules beside them."""

    @staticmethod
    def find_spec(name: str, path: list[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the source of module *name* in one of the folders *path*; None if it is not of this package."""
        found = (_sources_in(folder).find_spec(name) for folder in path or () if name.startswith("sim."))
        return next((spec for spec in found if spec is not None), None)


@cache
def _sources_in(folder: str) -> FileFinder:
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


if os.environ.get("GPUFLEET_PURE", "") not in ("", "0"):
    sys.meta_path.insert(0, _Sources)

from sim.answers.questions import QUESTIONS as _QUESTIONS  # noqa: E402

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
__all__ += [name for one in _QUESTIONS for name in (one, f"{one.capitalize()}Result")]


def __getattr__(name: str) -> Any:
    """Return a public name; all are imported at the first access, so that `import sim` stays fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sim.api import public

    globals().update({each: getattr(public, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
