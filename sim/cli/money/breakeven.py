"""`gpufleet breakeven`."""

from sim.cli.shared.question import Asked, asks


@asks()
def breakeven(asked: Asked) -> None:
    """Rent, buy or API: cost over utilisation and over months, and what tips the verdict.

    The scenario's section `breakeven` names other ways to pay for its fleets.
    """
    from sim.deliver.breakeven import deliver_breakeven
    from sim.report.money.breakeven.answer import breakeven_document, left_out, owned_peaks, ranking
    from sim.report.money.breakeven.verdict import sentences, unmoved
    from sim.report.page.page import text_table
    from sim.report.words.exactness import capacity_notes
    from sim.report.words.money import rate_notes
    from sim.report.words.services import load_notes
    from sim.study.fleets.capacity.search import why_no_capacity
    from sim.study.money.breakeven.decision import why_no_breakeven

    scenario = asked.scenario
    asked.refuse(why_no_capacity(scenario))
    asked.refuse(*why_no_breakeven(scenario))
    asked.say_what_is_ignored()
    answer = asked.delivered(deliver_breakeven)
    asked.show(
        lambda folder: breakeven_document(scenario, answer, folder),
        lambda: [
            text_table(ranking(answer)),
            *filter(None, [*sentences(answer), unmoved(answer), *left_out(answer)]),
            *load_notes(scenario),
            *rate_notes(scenario),
            *owned_peaks(answer, scenario),
            *capacity_notes(answer.capacities, scenario.precision),
            *asked.notes(),
            f"results in {asked.folder}",
        ],
    )
    asked.refuse_unable({one.fleet: one.reason for one in answer.capacities})
