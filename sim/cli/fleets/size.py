"""`gpufleet size`."""

from collections.abc import Iterator
from typing import Any

from sim.cli.shared.question import Asked, asks


@asks(fleets_optional=True)
def size(asked: Asked) -> None:
    """The cheapest fleet that meets the service level at the scenario's load, and why the others lose.

    The scenario's section `size` says what there is to choose from.
    """
    from sim.deliver.size import deliver_size
    from sim.report.fleets.size.answer import size_document
    from sim.study.fleets.size.prospects import why_no_size

    scenario = asked.scenario
    asked.refuse(why_no_size(scenario))
    asked.say_what_is_ignored()
    found = asked.delivered(deliver_size)
    asked.show(
        lambda folder: size_document(found, scenario, folder),
        lambda: list(_told(asked, found)),
    )


def _told(asked: Asked, found: Any) -> Iterator[Any]:
    from sim.report.fleets.size.answer import MOST_ROWS, sentences
    from sim.report.fleets.size.tables import impossible, ranking
    from sim.report.page.page import text_table
    from sim.report.words.money import rate_notes

    scenario, folder = asked.scenario, asked.folder
    if all(one.status == "impossible" for one in found.tried):
        yield from (text_table(impossible(found)), "")
    yield text_table(ranking(found, scenario, MOST_ROWS))
    yield from sentences(found, scenario)
    yield from rate_notes(scenario)
    yield from asked.notes()
    yield f"all {len(found.tried)} candidates in {folder}/size.csv"
    if found.winner is not None:
        year = ", which adds the bill of its year" if scenario.load_profile is not None else ""
        yield f"the winner alone in {folder}/winner.yaml, for gpufleet run{year}"
    if found.nearest is not None:
        yield f"the best fleet within the budget alone in {folder}/within_budget.yaml, for gpufleet run"
