"""What a warm-up and a precision need, which no single key shows."""

from collections.abc import Iterator

from sim.scenario.reading.errors import Complaint
from sim.scenario.schema import Scenario
from sim.scenario.sweep import is_deterministic


def statistical_complaints(scenario: Scenario) -> Iterator[Complaint]:
    """A warm-up that is looked for where nothing settles, and a precision that no number of replications gives."""
    if scenario.warmup_s == "auto" and not scenario.workload.stationary:
        text = "auto looks for a steady state, and a trace, a burst or a profile has none; give seconds"
        yield Complaint(("warmup_s",), text)
    elif scenario.warmup_s == "auto" and scenario.horizon_s is None:
        yield Complaint(("warmup_s",), "auto looks for a steady state, and without horizon_s the run ends in a drain")
    yield from _imprecise(scenario)


def _imprecise(scenario: Scenario) -> Iterator[Complaint]:
    precision = scenario.precision
    if precision is None:
        return
    # a scenario for `size` may have no fleets: those that it tries are priced, and random if the workload is
    fixed = [is_deterministic(scenario, fleet) for fleet in scenario.fleets] or [scenario.workload.deterministic]
    if all(fixed):
        yield Complaint(("precision",), "nothing here is random: every replication would be the same")
    if precision.max_replications < scenario.replications:
        text = f"must not be below replications ({scenario.replications}), not {precision.max_replications}"
        yield Complaint(("precision", "max_replications"), text)
    if precision.metric is None:
        return
    priced = [fleet.is_priced for fleet in scenario.fleets] or [True]
    if precision.metric.startswith("usd") and not any(priced):
        yield Complaint(("precision", "metric"), f"{precision.metric} needs a fleet with a cost")
    if precision.metric == "slo_attainment" and not scenario.slo.per_request:
        yield Complaint(("precision", "metric"), "slo_attainment needs a limit in slo that holds for each request")
