"""`gpufleet run`."""

from sim.cli.shared.question import Asked, asks


@asks(suffix="", jobs=True)
def run(asked: Asked) -> None:
    """Simulate a scenario and write tables, curves and a report."""
    from sim.deliver.run import futures_told, run_scenario
    from sim.report.fleets.run.terminal import headed, terminal_differences, terminal_table
    from sim.report.fleets.run.verdict import Verdict, verdict_of
    from sim.report.page.document import run_document
    from sim.report.words.exactness import precision_notes
    from sim.report.words.price_age import price_age_note
    from sim.report.words.worth import extrapolated_note
    from sim.scenario.job.schema import WorkScenario
    from sim.scenario.sections.compare import models_of
    from sim.scenario.sweep import axes
    from sim.study.cases.points import limits
    from sim.study.fleets.futures.settings import stored_disputes
    from sim.study.fleets.run.summary import summarize

    scenario, folder = asked.scenario, asked.folder
    if isinstance(scenario, WorkScenario):
        _run_work(asked)
        return
    cases = asked.delivered(run_scenario)
    told = (cases, axes(scenario), limits(scenario))

    def notes() -> list[str]:
        far = extrapolated_note(scenario, asked.catalog)
        settled = [*scenario.workload.notes(), *precision_notes(scenario, cases)]
        aged = price_age_note(scenario, asked.catalog)
        return [*settled, *far, *aged, *asked.notes(), *futures_told(folder)]

    def verdict() -> Verdict:
        return verdict_of(scenario, asked.catalog, summarize(*told), disputes=stored_disputes(folder))

    asked.show(
        lambda out: run_document(scenario, asked.catalog, cases, notes(), out),
        lambda: [
            *headed(verdict(), scenario),
            terminal_table(*told),
            *terminal_differences(*told, models_of(scenario, scenario.compare)),
            *notes(),
            f"results in {folder}",
        ],
    )
    if all(case.status == "infeasible" for case in cases):
        asked.refuse(*(f"fleets.{case.fleet}: {case.reason}" for case in cases))


def _run_work(asked: Asked) -> None:
    """A job, or a queue of jobs, in place of a service."""
    from sim.deliver.work import run_work
    from sim.report.work.kinds import kind_of

    kind, rows = kind_of(asked.scenario), asked.delivered(run_work)
    told = kind.verdict(rows)
    asked.show(
        lambda out: kind.document(asked.scenario, rows, out),
        lambda: [told.headline, "", *kind.tables(rows), *told.findings, f"results in {asked.folder}"],
    )
    if not any(row.ok for row in rows):
        asked.refuse(*(f"fleets.{row.fleet}: {row.outcome.plan.infeasible}" for row in rows))
