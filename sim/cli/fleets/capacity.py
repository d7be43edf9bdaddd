"""`gpufleet capacity`."""

from sim.cli.shared.question import Asked, asks


@asks("relative")
def capacity(asked: Asked) -> None:
    """Find the highest load at which each fleet still meets its service level."""
    from sim.deliver.capacity import deliver_capacity
    from sim.report.fleets.capacity.answer import capacity_document, capacity_rows, capacity_table
    from sim.report.fleets.capacity.page import findings
    from sim.report.words.exactness import unsettled
    from sim.study.fleets.capacity.axis import LoadAxis
    from sim.study.fleets.capacity.goal import precision_of
    from sim.study.fleets.capacity.search import why_no_capacity

    scenario = asked.scenario
    asked.refuse(why_no_capacity(scenario))
    axis = LoadAxis.of(scenario)
    asked.say_what_is_ignored(precision=precision_of(scenario, asked.relative))
    found = asked.delivered(deliver_capacity)
    rows = capacity_rows(found, axis, scenario.slo)
    asked.show(
        lambda folder: capacity_document(scenario, found, axis, asked.relative, folder),
        lambda: [
            *unsettled(found),
            capacity_table(rows, axis, scenario.slo),
            *findings(found, rows, axis, scenario, asked.relative),
            *asked.notes(),
            f"results in {asked.folder}",
        ],
    )
    asked.refuse_unable({one.fleet: one.reason for one in found})
