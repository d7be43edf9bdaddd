"""`gpufleet run`."""

from sim.cli.shared.question import Asked, asks


@asks(suffix="", jobs=True)
def run(asked: Asked) -> None:
    """Simulate a scenario and write tables, curves and a report."""
    from sim.deliver.run import futures_told, run_scenario
    from sim.report.page.document import run_document
    from sim.report.run.terminal import terminal_differences, terminal_table
    from sim.report.words.exactness import precision_notes
    from sim.scenario.job.schema import JobScenario
    from sim.scenario.sweep import axes
    from sim.study.cases.points import limits

    scenario, folder = asked.scenario, asked.folder
    if isinstance(scenario, JobScenario):
        _run_job(asked)
        return
    cases = asked.delivered(run_scenario)
    told = (cases, axes(scenario), limits(scenario))
    notes = [*scenario.workload.notes(), *precision_notes(scenario, cases), *asked.notes(), *futures_told(folder)]
    asked.show(
        lambda out: run_document(scenario, *told, notes, out),
        lambda: [terminal_table(*told), *terminal_differences(*told), *notes, f"results in {folder}"],
    )
    if all(case.status == "infeasible" for case in cases):
        asked.refuse(*(f"fleets.{case.fleet}: {case.reason}" for case in cases))


def _run_job(asked: Asked) -> None:
    """A training job in place of a service."""
    from sim.deliver.job import run_job
    from sim.report.job.answer import job_document, job_tables
    from sim.report.job.verdict import verdict

    rows = asked.delivered(run_job)
    told = verdict(rows)
    asked.show(
        lambda out: job_document(asked.scenario, rows, out),
        lambda: [*job_tables(rows), told.headline, *told.findings, f"results in {asked.folder}"],
    )
    if not any(row.ok for row in rows):
        asked.refuse(*(f"fleets.{row.fleet}: {row.outcome.plan.infeasible}" for row in rows))
