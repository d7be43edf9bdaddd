"""`gpufleet run`."""

from sim.cli.shared.question import Asked, asks


@asks(suffix="")
def run(asked: Asked) -> None:
    """Simulate a scenario and write tables, curves and a report."""
    from sim.deliver.run import futures_told, run_scenario
    from sim.report.page.document import run_document
    from sim.report.run.terminal import terminal_differences, terminal_table
    from sim.report.words.exactness import precision_notes
    from sim.scenario.sweep import axes
    from sim.study.cases.points import limits

    scenario, folder = asked.scenario, asked.folder
    cases = asked.delivered(run_scenario)
    told = (cases, axes(scenario), limits(scenario))
    notes = [*scenario.workload.notes(), *precision_notes(scenario, cases), *asked.notes(), *futures_told(folder)]
    asked.show(
        lambda out: run_document(scenario, *told, notes, out),
        lambda: [terminal_table(*told), *terminal_differences(*told), *notes, f"results in {folder}"],
    )
    if all(case.status == "infeasible" for case in cases):
        asked.refuse(*(f"fleets.{case.fleet}: {case.reason}" for case in cases))
