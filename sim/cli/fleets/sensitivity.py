"""`gpufleet sensitivity`."""

from sim.cli.shared.question import Asked, asks


@asks()
def sensitivity(asked: Asked) -> None:
    """Which inputs change the cost of each fleet and their difference, and what the difference is made of.

    The scenario's section `sensitivity` names inputs and ranges; left out: prices, rates, load and lengths, 30 % each.
    """
    from sim.deliver.sensitivity import deliver_sensitivity
    from sim.report.fleets.sensitivity.answer import sensitivity_document, tables
    from sim.report.fleets.sensitivity.verdict import gap_sentences, sentences
    from sim.report.page.page import text_table
    from sim.study.fleets.sensitivity.one_at_a_time import why_no_sensitivity

    scenario = asked.scenario
    asked.refuse(*why_no_sensitivity(scenario))
    asked.say_what_is_ignored()
    answer = asked.delivered(deliver_sensitivity)
    asked.show(
        lambda folder: sensitivity_document(scenario, answer, folder),
        lambda: [
            *(part for table in tables(answer) for part in (text_table(table), "")),
            *filter(None, [*sentences(answer), *gap_sentences(answer), *answer.found.reasons]),
            *filter(None, [answer.explained.reason, *asked.notes()]),
            f"results in {asked.folder}",
        ],
    )
    asked.refuse_unable(dict.fromkeys(answer.found.base, "") | dict(answer.found.unable))
