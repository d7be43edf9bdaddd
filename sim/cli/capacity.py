"""`gpufleet capacity`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sim.cli.common import (
    OTHER_FAILURE,
    Replications,
    ScenarioFile,
    Seed,
    Sets,
    Workers,
    app,
    bad_input_told,
    fail,
    scenario_file,
    show_all,
    usable,
)


@app.command()
def capacity(
    scenario: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    replications: Replications = None,
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option(help="Left out: outputs/<scenario name>-capacity.")] = None,
    relative: Annotated[float, typer.Option(min=0.001, max=0.5, help="Width of the last bracket.")] = 0.02,
) -> None:
    """Find the highest load at which each fleet still meets its service level."""
    with bad_input_told():
        from sim.catalog.catalog import load_catalog
        from sim.report.capacity import capacity_rows, capacity_table, deliver_capacity
        from sim.scenario.load import load
        from sim.study.capacity import LoadAxis, why_no_capacity

        path, catalog = scenario_file(scenario), load_catalog()
        loaded = load(path, sets or (), catalog=catalog, seed=seed, replications=replications)
        folder = usable(out or Path("outputs") / f"{loaded.name}-capacity")
        if refusal := why_no_capacity(loaded):
            fail(f"{path}: {refusal}")
        axis = LoadAxis.of(loaded)
        try:
            found = deliver_capacity(loaded, catalog, folder, workers or os.cpu_count() or 1, relative)
        except KeyboardInterrupt:
            fail(f"{folder}: interrupted; finished points are kept, and the same command uses them", OTHER_FAILURE)
    show_all(capacity_table(capacity_rows(found, axis), axis), f"results in {folder}")
