"""`gpufleet check`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from sim.cli.shared.common import (
    Format,
    Replications,
    ScenarioFile,
    Seed,
    Sets,
    app,
    bad_input_told,
    fail,
    scenario_file,
    show_all,
)


@app.command()
def check(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    format: Format = "table",
) -> None:
    """Resolve and validate a scenario, print its plan and where each value comes from; simulate nothing."""
    with bad_input_told():
        from sim.catalogue.catalog import load_catalog
        from sim.report.check.resolved import overview, space
        from sim.report.futures.tables import inputs_told
        from sim.report.page.document import as_json, check_document
        from sim.scenario.job.load import has_job
        from sim.scenario.reading.load import load_for_size
        from sim.scenario.resolving.case import resolve
        from sim.scenario.resolving.describe import describe
        from sim.scenario.sweep import cases

        catalog = load_catalog()
        options = {"seed": seed, "replications": replications}
        path = scenario_file(scenario)
        if has_job(path):
            _check_job(path, sets or (), catalog, options, format)
            return
        loaded = load_for_size(path, sets or (), catalog=catalog, **options)
        found = cases(loaded)
        first = [case for case in found if case.replication == 0]
        plans = [(case.axes, describe(resolve(loaded, case, catalog), catalog)) for case in first]
    if format == "json":
        typer.echo(as_json(check_document(loaded, plans, len(found))))
    else:
        asked = [loaded.question] if loaded.question else []
        told = overview(plans, len(found), loaded.precision) if plans else space(loaded, catalog)
        show_all(*asked, *told, *inputs_told(loaded))
    if plans and all(plan["infeasible"] for _, plan in plans):
        fail("\n".join(dict.fromkeys(f"{plan['fleet']}: {plan['infeasible']}" for _, plan in plans)))


def _check_job(path: Path, sets: Sequence[str], catalog: Any, options: dict[str, int | None], format: str) -> None:
    """A training job in place of a service."""
    from sim.report.job.check import job_overview
    from sim.report.page.document import as_json
    from sim.scenario.job.describe import describe_job
    from sim.scenario.job.load import load_job
    from sim.study.job.columns import summary
    from sim.study.job.outcome import job_outcomes

    loaded = load_job(path, sets, catalog=catalog, **options)
    found = job_outcomes(loaded, catalog)
    plans = [describe_job(one.plan, catalog) for one in found]
    if format == "json":
        shown = [{"axes": one.plan.axes, **plan} for one, plan in zip(found, plans, strict=True)]
        told = {"scenario": loaded.name, "question": loaded.question, "cases": len(found), "plans": shown}
        typer.echo(as_json(told))
    else:
        show_all(*([loaded.question] if loaded.question else []), *job_overview(summary(found), plans))
    if all(plan["infeasible"] for plan in plans):
        fail("\n".join(dict.fromkeys(f"{plan['fleet']}: {plan['infeasible']}" for plan in plans)))
