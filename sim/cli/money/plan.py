"""`gpufleet plan`."""

from sim.cli.shared.question import Asked, asks


@asks("relative")
def plan(asked: Asked) -> None:
    """Plan several years month by month: what to buy, replace or rent when, and the cash.

    The scenario's section `plan` gives demand, orders and terms.
    """
    from sim.deliver.plan import deliver_plan
    from sim.report.money.plan.answer import plan_document, plan_rate_notes, verdict_of_plan
    from sim.report.money.plan.tables import plan_table
    from sim.report.words.services import load_notes
    from sim.study.fleets.capacity.search import why_no_capacity
    from sim.study.money.plan.plans import why_no_plan

    scenario = asked.scenario
    asked.refuse(why_no_plan(scenario))
    asked.refuse(why_no_capacity(scenario))
    asked.say_what_is_ignored()
    found = asked.delivered(deliver_plan)
    answer = verdict_of_plan(scenario, found)
    asked.show(
        lambda folder: plan_document(scenario, found, folder),
        lambda: [
            plan_table(found),
            "",
            answer.headline,
            *answer.findings,
            *load_notes(scenario),
            *plan_rate_notes(scenario),
            *asked.notes(),
            f"results in {asked.folder}",
        ],
    )
    asked.refuse_unable({one.fleet: one.capacity.reason for one in found if not one.api})
