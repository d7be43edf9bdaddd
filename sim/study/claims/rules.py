"""From figures to verdicts: when a part of a claim holds, and what the parts come to together.

A part holds where its figure keeps to its rule; computed under several conditions, where it does so under all of them.
It depends where it holds under some conditions and not under others, or where the 95 % interval of the figure holds the
limit. Of a claim

- one part that is the article's own arithmetic and fails makes it an arithmetic error;
- all parts hold: it holds; all parts fail: it fails;
- some hold and some fail: it holds in part;
- else, some part depends: it depends.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sim.scenario.claims.claim import Part, Rule
from sim.study.claims.figure import Figure

Status = Literal["holds", "fails", "depends"]
Verdict = Literal["holds", "holds in part", "fails", "depends", "arithmetic error"]
VERDICTS: tuple[Verdict, ...] = ("holds", "holds in part", "depends", "fails", "arithmetic error")


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of a claim under one condition."""

    condition: str
    """Empty where the part has no conditions."""
    figure: Figure
    status: Status


@dataclass(frozen=True, slots=True)
class Judged:
    """A part of a claim with its figures."""

    part: Part
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """Over all conditions."""
        return together(one.status for one in self.findings)


def together(statuses: Iterable[Status]) -> Status:
    """Holds or fails where all do."""
    found = set(statuses)
    return found.pop() if len(found) == 1 else "depends"


def judge(part: Part, figures: dict[str, Figure]) -> Judged:
    """*part* on the figures of the claim."""
    findings = (
        Finding(condition, figures[name], _status(part, figures[name])) for condition, name in part.named.items()
    )
    return Judged(part, tuple(findings))


def _status(part: Part, figure: Figure) -> Status:
    kept = [_keeps(part.holds, value, part.claimed) for value in (figure.value, *figure.ends)]
    return "holds" if all(kept) else "depends" if any(kept) else "fails"


def _keeps(rule: Rule, value: float, claimed: float | None) -> bool:
    if rule.within is not None:
        assert claimed  # the part's own check
        return abs(value / claimed - 1) <= rule.within
    if rule.between is not None:
        return rule.between[0] <= value <= rule.between[1]
    if rule.at_least is not None:
        return value >= rule.at_least
    assert rule.at_most is not None  # a rule has one key
    return value <= rule.at_most


def verdict(parts: Sequence[Judged]) -> Verdict:
    """What *parts* come to."""
    statuses = {one.status for one in parts}
    if any(one.part.own_arithmetic and one.status == "fails" for one in parts):
        return "arithmetic error"
    if len(statuses) == 1:
        return statuses.pop()
    return "holds in part" if {"holds", "fails"} <= statuses else "depends"
