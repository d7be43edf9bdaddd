"""Command `gpufleet explain`."""

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.frame import Catalogs, ScenarioFile, Seed, Sets, app, catalog_for, fail, report_bad_input, show_all
from sim.language import _
from sim.message import Message
from sim.scenario.reading.shipped import scenario_file

Number = Annotated[int, typer.Option("--request", min=0, help="Number of the request in order of arrival, from 0.")]
Fleet = Annotated[str | None, typer.Option(help="Name of the fleet; default: the first fleet.")]
Trace = Annotated[
    Path | None,
    typer.Option(help="Also write the steps of the request's replica as a trace for Perfetto (ui.perfetto.dev)."),
]


@app.command()
def explain(
    scenario: ScenarioFile,
    request: Number,
    sets: Sets = None,
    seed: Seed = None,
    fleet: Fleet = None,
    trace: Trace = None,
    catalogs: Catalogs = None,
) -> None:
    """Show the steps of one request and what kept it waiting.

    The request belongs to the first point of the sweep.
    """
    with report_bad_input():
        from sim.report.explanation import request_timeline
        from sim.report.explanation import trace as trace_of
        from sim.scenario.reading.load import load
        from sim.scenario.resolving.case import resolve
        from sim.scenario.sweep import cases
        from sim.study.explanation import NoSuchRequest, journal_of

        path = scenario_file(scenario)
        catalog = catalog_for(path, catalogs)
        loaded = load(path, sets or (), catalog=catalog, seed=seed)
        names = [one.name for one in loaded.fleets]
        if fleet is not None and fleet not in names:
            fail(Message("--fleet {fleet}: there is none of that name; there are {names}", fleet, ", ".join(names)))
        case = next(case for case in cases(loaded) if case.fleet == (fleet or names[0]))
        plan = resolve(loaded, case, catalog)
        if plan.infeasible:
            fail(Message("fleets.{fleet}: {reason}", plan.fleet, plan.infeasible))
        if plan.unit or plan.services:
            fail("explain shows the steps of language models, in scenarios with one service")
        try:
            journal = journal_of(plan, request)
        except NoSuchRequest as error:
            fail(Message("--request {request}: {error}", request, error))
        if trace is not None:
            trace.write_text(trace_of(journal))
    point = ", ".join(f"{axis} {value}" for axis, value in case.axes.items())
    where = [_("At the first point of the sweep: {point}.", point=point)] if point else []
    show_all(*where, *request_timeline(journal), *([Message("trace in {trace}", trace)] if trace else []))
