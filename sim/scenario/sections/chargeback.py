"""Section `chargeback`: rules by which tenants share the cost that no request causes."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from sim.message import Message
from sim.scenario.experiment import Experiment
from sim.scenario.sections import Everything, Section
from sim.spec import NonNegative, Spec
from sim.validation import ValidationIssue, did_you_mean
from sim.workload import TraceError

Rule = Literal["none", "by_use", "by_reservation", "by_headcount"]
CommonLine = Literal["idle", "unused", "other"]
Weights = Annotated[dict[str, NonNegative], Field(min_length=1)]


class Chargeback(Spec):
    """Split of the bill among tenants: a tenant pays for its requests, and its part of the cost that none causes."""

    idle: Rule = "none"
    """Rule for GPUs that are on and have no work: `none` (no tenant pays), `by_use` (in proportion to the cost of the
    tenants' requests in the same pool), `by_reservation` or `by_headcount`."""
    unused: Rule = "none"
    """Rule for GPUs that are paid for and that no replica uses, and for unused commitments."""
    other: Rule = "none"
    """Rule for replicas that start, have failed or are held in reserve."""
    reservations: Weights | None = None
    """Tenant -> reserved capacity, in any unit, for `by_reservation`."""
    headcount: Weights | None = None
    """Tenant -> number of people, for `by_headcount`."""

    def rule(self, line: CommonLine) -> Rule:
        """Return the rule for *line*."""
        found: Rule = getattr(self, line)
        return found

    def weights(self, rule: Rule) -> Mapping[str, float]:
        """Return the stated weights of *rule*; empty where it has none."""
        return (self.reservations if rule == "by_reservation" else self.headcount) or {}


KEYS: dict[Rule, str] = {"by_reservation": "reservations", "by_headcount": "headcount"}
"""Rule -> key with its weights."""


def _check(chargeback: Chargeback, scenario: Experiment, _: Everything) -> Iterator[ValidationIssue]:
    """Yield issues of requests without costs, rules without weights, and weights of unknown or missing tenants."""
    if not scenario.cost_per_request:
        text = "needs the cost of each request: add cost_per_request: true"
        yield ValidationIssue(("chargeback",), text)
    rules = {chargeback.idle, chargeback.unused, chargeback.other}
    known = _names(scenario)
    if known == []:
        text = "has no tenant to charge: state workload.tenants, or several services"
        yield ValidationIssue(("chargeback",), text)
    for rule, key in KEYS.items():
        stated: Mapping[str, float] | None = getattr(chargeback, key)
        if stated is None:
            if rule in rules:
                text = Message("is missing: {rule} shares in proportion to it", rule)
                yield ValidationIssue(("chargeback", key), text)
            continue
        if not any(stated.values()):
            yield ValidationIssue(("chargeback", key), "is 0 for all: at least one weight above 0 is needed")
        for name in stated:
            if known and name not in known:
                text = Message("there is no tenant or service {name!r}{hint}", name, did_you_mean(name, known))
                yield ValidationIssue(("chargeback", key, name), text)
        if missing := [name for name in known or () if name not in stated]:
            text = Message("lacks {names}: state 0 for a tenant that pays no part", ", ".join(missing))
            yield ValidationIssue(("chargeback", key), text)


def _names(scenario: Experiment) -> list[str] | None:
    """Return the names of all tenants, else of the services; empty without any, None where a trace cannot be read."""
    if scenario.services:
        tenants = [service.workload for service in scenario.services if service.workload.names_tenants]
        return None if tenants else [service.name for service in scenario.services]
    try:
        return scenario.workload.known_tenants if scenario.workload is not None else []
    except TraceError:
        return None


CHARGEBACK: Section[Chargeback] = Section(
    repriced=True,
    check=_check,
    example="""\
# who pays for idle and unused capacity, with cost_per_request: none, by_use, by_reservation or by_headcount
# chargeback: {idle: by_use, unused: by_reservation, reservations: {web: 3, batch: 1}}""",
)
