"""gpufleet: which fleet of GPUs for this traffic, how fast will it answer, and what does a million tokens cost?

From Python (docs/python.md):

    run = sim.run("4x4090-vs-2xa100", {"workload.arrivals.rate_rps": 0.5})
    run.summary, run.plot("cost_vs_latency"), run.price({"site.electricity_usd_per_kwh": 0.3})

`capacity`, `size`, `sensitivity`, `breakeven`, `plan` and `check` take the same first two arguments; `catalog` holds
the sourced numbers, `simulate` is the engine alone, `register` adds a policy.

Reading guide. Start with these three files, in this order:

1. `case.py`: one case on one page: a plan is resolved, a fleet is run, a ledger is drawn up.
2. `scenario/schema.py`: what a scenario file may say; `scenario/resolving/resolved.py`: what it comes to once ids are
   sourced values.
3. `records.py`: what flows between the layers.

Then `engine/synchronous.py` for how a replica steps, `steptime/roofline.py` for how long a step takes, `cost/ledger.py`
for money. Imports go one way only:

    {cli -> serve, api} -> answers -> {jobs -> training} -> report -> study -> case -> fleet -> {engine, scenario}
    cli -> {claims -> {jobs, training}, fidelity -> training} -> answers
    scenario -> {workload steptime batchtime memory power routing batching cost} -> catalogue
    scenario -> {coldstart autoscaling failures} -> catalogue
    catalogue -> {registry -> spec, records} -> {csvio, yamlio, units, rng, decimals, otel} -> {infile, message}
    engine -> {batching, records, units, rng}
    study -> benchdata -> catalogue
    {cli serve api answers report scenario} -> language -> message

To extend: a GPU, model or price is a file in data/; a policy is a class under `sim.register`, or a file in its part
(`routing/`, `batching/`, `steptime/`, `workload/`, `cost/`) and its name in the union of that part's `__init__.py`.
"""

from typing import Any

from sim.answers.questions import QUESTIONS as _QUESTIONS

__all__ = [
    "Batch",
    "BenchdataError",
    "CatalogError",
    "CheckResult",
    "FolderBusy",
    "FolderRefused",
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
    """A public name. All are imported when the first is asked for: `import sim` and `gpufleet --help` stay instant."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sim.api import public

    globals().update({each: getattr(public, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
