"""claims.csv, parts.csv, claims.html and claims.md in a folder."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sim.language import ENGLISH, N_, _, ngettext, speaking
from sim.report.claims.words import ARTICLES, claimed, computed, interval, notes, reason, rule, shown
from sim.report.fleets.run.tables import write_rows
from sim.report.page.template import render
from sim.report.terminal.fitted import FittedTable
from sim.report.words.text import first_sentence, listing
from sim.study.claims.answer import Answer
from sim.study.claims.rules import VERDICTS, Judged

PAGE, CHAPTER = "claims/claims.html.j2", "claims/claims.md.j2"
COLUMNS = ["id", "verdict", "claimed", "computed", "unit", "reason", "scenario"]


COUNTED = {
    "holds": ("{count} holds", N_("{count} hold")),
    "holds in part": ("{count} holds in part", N_("{count} hold in part")),
    "fails": ("{count} fails", N_("{count} fail")),
    "depends": ("{count} depends", N_("{count} depend")),
    "arithmetic error": ("{count} arithmetic error", N_("{count} arithmetic errors")),
}
"""Verdict -> one of them and several."""


def write_claims(folder: Path, answers: Sequence[Answer]) -> None:
    """All four files."""
    with speaking(ENGLISH):
        write_rows(folder / "claims.csv", claim_rows(answers), COLUMNS)
        write_rows(folder / "parts.csv", part_rows(answers))
        (folder / "claims.md").write_text(rendered(CHAPTER, answers), encoding="utf-8")
    (folder / "claims.html").write_text(rendered(PAGE, answers), encoding="utf-8")


def claim_rows(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """One row per claim, with the figure of its first part: three digits, from lowest to highest over conditions."""
    return [
        {
            "id": one.id,
            "verdict": one.verdict,
            "claimed": claimed(one.parts[0].part).replace(",", ""),
            "computed": computed(one.parts[0]).replace(",", ""),
            "unit": one.parts[0].part.unit,
            "reason": reason(one),
            "scenario": f"claims/{one.scenario}",
        }
        for one in answers
    ]


def part_rows(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """One row per part and condition, with full figures and intervals."""
    return [
        {
            "id": one.id,
            "part": judged.part.says,
            "condition": finding.condition,
            "claimed": judged.part.claimed,
            "computed": finding.figure.value,
            "computed_ci95": finding.figure.half_width,
            "unit": judged.part.unit,
            "rule": rule(judged.part.holds, judged.part.unit),
            "status": finding.status,
        }
        for one in answers
        for judged in one.parts
        for finding in judged.findings
    ]


def tally(answers: Sequence[Answer]) -> str:
    """How many claims hold, and so on: `12 hold, 9 hold in part`."""
    counts = Counter(one.verdict for one in answers)
    return listing([ngettext(*COUNTED[name], counts[name]) for name in VERDICTS if counts[name]])


def rendered(template: str, answers: Sequence[Answer]) -> str:
    """The page or the chapter."""
    groups = []
    for article, subject in ARTICLES.items():
        of_it = [one for one in answers if one.claim.article == article]
        if of_it:
            groups.append({"id": article, "subject": _(subject), "claims": [_claim(one) for one in of_it]})
    index = [{"id": one.id, "verdict": one.verdict} for one in answers]
    return render(template, tally=tally(answers), count=len(answers), index=index, groups=groups)


def _claim(one: Answer) -> dict[str, Any]:
    return {
        "id": one.id,
        "verdict": one.verdict,
        "mark": one.verdict.replace(" ", "-"),
        "statement": one.claim.statement,
        "question": first_sentence(one.question)[0],
        "reason": reason(one),
        "notes": notes(one),
        "scenario": one.scenario,
        "digest": one.digest,
        "rows": [row for judged in one.parts for row in _lines(judged)],
    }


def _lines(judged: Judged) -> Iterator[dict[str, str]]:
    part = judged.part
    for index, one in enumerate(judged.findings):
        yield {
            "says": part.says if index == 0 else "",
            "condition": one.condition,
            "claimed": claimed(part) if index == 0 else "",
            "computed": shown(one.figure.value, part.unit),
            "interval": interval(one, part.unit),
            "unit": "" if part.unit == "yes/no" else part.unit,
            "rule": rule(part.holds, part.unit),
            "status": one.status,
        }


def terminal_table(answers: Sequence[Answer]) -> list[FittedTable | str]:
    """What the terminal prints: a table, the reasons, the tally."""
    rows = [
        [one.id, _(one.verdict), claimed(one.parts[0].part), computed(one.parts[0]), one.parts[0].part.unit]
        for one in answers
    ]
    table = FittedTable(("id", "verdict", "claimed", "computed", "unit"), rows, frozenset({0, 1, 4}))
    reasons = [f"{one.id} {_(one.verdict)}: {reason(one)}" for one in answers]
    return [table, "", *reasons, "", _("{count} claims: {tally}", count=len(answers), tally=tally(answers))]
