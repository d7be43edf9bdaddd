"""Conditions under which a change of a plan is refused: `gpufleet diff A B --fail-if 'ttft_s_p99 > +5 %'`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sim.message import Message
from sim.study.diff import StoredRun, matched
from sim.study.metrics.columns import BY_NAME, column, is_column
from sim.study.points import Point
from sim.validation import nearest

_CONDITION = re.compile(r"\s*([a-z][\w.]*)\s*([<>])\s*([+-]?)\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*(%?)\s*", re.ASCII)
EXAMPLES = "'usd_per_million_output_tokens > +5 %', 'ttft_s_p99 > 2', 'slo_attainment < 0.95'"


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on a column of summary.csv: a limit for its values, or for their change between two runs."""

    text: str
    column: str
    above: bool
    """True if values above `limit` fulfil the condition; otherwise values below it."""
    limit: float
    change: str = ""
    """`absolute` or `relative`: the change between the runs is compared; empty: the value in the second run."""

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read a condition: COLUMN > VALUE, or < VALUE.

        A value with a sign is a change, and with a percent sign a change relative to the first run. Raises ValueError.
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise ValueError(Message("{condition!r} is not a condition; examples: {examples}", text, EXAMPLES))
        name, operator, sign, number, percent = found.groups()
        if not is_column(name):
            near = nearest(name, BY_NAME)
            meant = Message("; did you mean {near!r}?", near) if near else ""
            raise ValueError(Message("{condition!r}: summary.csv has no column {name!r}{hint}", text, name, meant))
        share = name in BY_NAME and column(name).unit == "share"
        if percent and not sign and not share:
            raise ValueError(
                Message(
                    "{condition!r}: a change in percent has a sign: {name} {operator} +{number} %",
                    text,
                    name,
                    operator,
                    number,
                )
            )
        limit = float(f"{sign}{number}") / (100.0 if percent else 1.0)
        return cls(text, name, operator == ">", limit, ("relative" if percent else "absolute") if sign else "")

    def value(self, before: float | None, after: float | None) -> float | None:
        """Return the value to compare with the limit, from the column in both runs; None where a run lacks it."""
        if not self.change or after is None:
            return after
        if before is None:
            return None
        if self.change == "absolute":
            return after - before
        return (after - before) / abs(before) if before else (0.0 if after == before else float("inf"))

    def holds(self, value: float) -> bool:
        """Return whether *value* lies beyond the limit, by more than rounding."""
        slack = 1e-12 * max(1.0, abs(self.limit))
        return value > self.limit + slack if self.above else value < self.limit - slack


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one condition at one point."""

    condition: Condition
    point: Point
    """The point in the second run."""
    first: float | None
    second: float | None
    value: float | None
    """Value compared with the limit; None where the condition cannot be judged."""
    fails: bool
    reason: str = ""
    """Reason why the condition fails or is not judged, if there is no value; else empty."""


def judged(first: StoredRun, second: StoredRun, conditions: Sequence[Condition]) -> list[Outcome]:
    """Judge *conditions* at all points of the second run.

    Fleets are matched by name and points by their place in the sweep.

    A fleet that could run in the first run and cannot in the second fails every condition at that point. A condition on
    a change is not judged at points of one run alone, nor where the first run has no value.

    Raises
    ------
    ValueError
        Where a condition can be judged at no point at all: it would pass unnoticed. Its arguments are the messages.

    """
    before = {id(b): a for a, b in matched(first, second)}
    found = [_outcome(one, before.get(id(point)), point) for point in second.points for one in conditions]
    seen = {id(one.condition) for one in found if one.value is not None or one.fails}
    if blind := [one.text for one in conditions if id(one) not in seen]:
        raise ValueError(
            *(Message("{condition!r}: no point of the two runs has the values it needs", text) for text in blind)
        )
    return found


def _outcome(condition: Condition, first: Point | None, second: Point) -> Outcome:
    before, after = (None if one is None or not one.ok else one.number(condition.column) for one in (first, second))
    value = condition.value(before, after)
    if value is not None:
        return Outcome(condition, second, before, after, value, condition.holds(value))
    if not second.ok:
        broken = first is None or first.ok
        return Outcome(
            condition, second, before, after, None, broken, Message("does not fit: {reason}", second.row["reason"])
        )
    missing = "the first run" if after is not None else "the second run"
    return Outcome(
        condition, second, before, after, None, False, Message("not judged: {missing} has no such value", missing)
    )
