"""Tables and pages of `gpufleet claims`: claims.csv, parts.csv, claims.html, claims.md and a page per claim."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.answers.folder import begin_question, replaced_together
from sim.catalogue.catalog import Catalog
from sim.claims.figures import ClaimFigure
from sim.claims.verdict import VERDICTS, ClaimVerdict, ConditionedPart, JudgedPart, check_claims
from sim.language import ENGLISH, N_, _, ngettext, speaking
from sim.report.page.template import render
from sim.report.progress import CaseProgress
from sim.report.run.tables import write_rows
from sim.report.terminal_table import FittedTable
from sim.report.words.text import first_sentence, listing, plain
from sim.scenario.claim import PLACEHOLDER, ClaimPart, ClaimRule

ARTICLES = {
    "000": N_("L40S, A10, A40, A100 and A6000 for inference"),
    "001": N_("A100, H100 and RTX 4090: value for money"),
    "002": N_("Choosing a graphics card in the age of AI"),
    "003": N_("Choosing GPUs for deep learning and language models"),
    "004": N_("Training against inference: H100, A6000, L40S and A100"),
}
"""Subjects of the articles, keyed by id."""
YES_NO = "yes/no"
EXACT = 6
"""Significant digits of limits, which claim files state exactly."""


def filled(text: str, figures: dict[str, ClaimFigure]) -> str:
    """Replace each `{name}` or `{name:format}` in *text* by the figure of that name.

    >>> filled("{cards:.0f} cards, {usd} USD", {"cards": ClaimFigure(4.2), "usd": ClaimFigure(1234.5)})
    '4 cards, 1,234 USD'
    """

    def put(found: re.Match[str]) -> str:
        value = figures[found[1]].value
        return format(value, found[2]) if found[2] else plain(value)

    return " ".join(PLACEHOLDER.sub(put, text).split())


def reason(answer: ClaimVerdict) -> str:
    """Return the reason for the verdict."""
    return filled(answer.claim.reason, answer.figures)


def notes(answer: ClaimVerdict) -> list[str]:
    """Return the notes on the verdict."""
    return [filled(note, answer.figures) for note in answer.claim.notes]


def shown(value: float | None, unit: str) -> str:
    """Format a value: three digits, or yes or no."""
    if value is None:
        return ""
    if unit == YES_NO:
        return _("yes") if value else _("no")
    return plain(value)


def claimed(part: ClaimPart) -> str:
    """Return the article's number; empty if it states none."""
    return shown(part.claimed, part.unit)


def computed(judged: JudgedPart) -> str:
    """Return the figure, or the smallest and largest over several conditions."""
    texts = [shown(one.figure.value, judged.part.unit) for one in ordered(judged)]
    return texts[0] if texts[0] == texts[-1] else _("{low} to {high}", low=texts[0], high=texts[-1])


def ordered(judged: JudgedPart) -> list[ConditionedPart]:
    """Return the findings of *judged* sorted by figure."""
    return sorted(judged.findings, key=lambda one: one.figure.value)


def interval(one: ConditionedPart, unit: str) -> str:
    """Return the 95 % interval, such as `0.93 to 0.97`; empty without one."""
    if one.figure.half_width is None or unit == YES_NO:
        return ""
    low, high = one.figure.ends
    return _("{low} to {high}", low=plain(low), high=plain(high))


def rule(holds: ClaimRule, unit: str) -> str:
    """Return the condition that the figure must meet."""
    if holds.within is not None:
        return _("within {within:g} %", within=100 * holds.within)
    if holds.between is not None:
        return _("{low} to {high}", low=plain(holds.between[0], EXACT), high=plain(holds.between[1], EXACT))
    if holds.at_least is not None:
        return _("yes") if unit == YES_NO else _("at least {exact}", exact=plain(holds.at_least, EXACT))
    assert holds.at_most is not None  # each rule has exactly one key
    return _("no") if unit == YES_NO else _("at most {exact}", exact=plain(holds.at_most, EXACT))


PAGE, INDEX, DETAIL = "claims/claims.html.j2", "claims/claims.md.j2", "claims/claim.md.j2"
COLUMNS = ["id", "verdict", "claimed", "computed", "unit", "reason", "scenario"]


COUNTED = {
    "holds": ("{count} holds", N_("{count} hold")),
    "holds in part": ("{count} holds in part", N_("{count} hold in part")),
    "fails": ("{count} fails", N_("{count} fail")),
    "depends": ("{count} depends", N_("{count} depend")),
    "arithmetic error": ("{count} arithmetic error", N_("{count} arithmetic errors")),
}
"""Singular and plural of each verdict."""


def write_claims(folder: Path, answers: Sequence[ClaimVerdict]) -> None:
    """Write the tables, the HTML page, the index claims.md and a page CNN.md per claim to *folder*."""
    with speaking(ENGLISH):
        write_rows(folder / "claims.csv", claim_rows(answers), COLUMNS)
        write_rows(folder / "parts.csv", part_rows(answers))
        (folder / "claims.md").write_text(rendered_index(answers), encoding="utf-8")
        for answer in answers:
            (folder / f"{answer.id}.md").write_text(rendered_claim(answer), encoding="utf-8")
    (folder / "claims.html").write_text(rendered_page(answers), encoding="utf-8")


def claim_rows(answers: Sequence[ClaimVerdict]) -> list[dict[str, Any]]:
    """Return a row per claim with the figure of its first part: three digits, the range over conditions."""
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


def part_rows(answers: Sequence[ClaimVerdict]) -> list[dict[str, Any]]:
    """Return a row per part and condition, with figures in full precision and intervals."""
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


def tally(answers: Sequence[ClaimVerdict]) -> str:
    """Return the number of claims per verdict: `12 hold, 9 hold in part`."""
    counts = Counter(one.verdict for one in answers)
    return listing([ngettext(*COUNTED[name], counts[name]) for name in VERDICTS if counts[name]])


def rendered_page(answers: Sequence[ClaimVerdict]) -> str:
    """Return claims.html: all claims with their parts, grouped by article."""
    groups = []
    for article, subject in ARTICLES.items():
        of_it = [one for one in answers if one.claim.article == article]
        if of_it:
            groups.append({"id": article, "subject": _(subject), "claims": [_claim(one) for one in of_it]})
    index = [{"id": one.id, "verdict": one.verdict} for one in answers]
    return render(PAGE, tally=tally(answers), count=len(answers), index=index, groups=groups)


def rendered_index(answers: Sequence[ClaimVerdict]) -> str:
    """Return claims.md: a table with a row per claim, which links to the page of the claim."""
    return render(INDEX, tally=tally(answers), count=len(answers), claims=[_claim(one) for one in answers])


def rendered_claim(answer: ClaimVerdict) -> str:
    """Return the Markdown page of one claim: verdict, reason, parts and notes."""
    return render(DETAIL, claim=_claim(answer), subject=_(ARTICLES[answer.claim.article]))


def _claim(one: ClaimVerdict) -> dict[str, Any]:
    first = one.parts[0]
    return {
        "id": one.id,
        "article": one.claim.article,
        "verdict": one.verdict,
        "mark": one.verdict.replace(" ", "-"),
        "statement": one.claim.statement,
        "question": first_sentence(one.question)[0],
        "reason": reason(one),
        "notes": notes(one),
        "scenario": one.scenario,
        "digest": one.digest,
        "claimed": claimed(first.part),
        "computed": computed(first),
        "unit": "" if first.part.unit == YES_NO else first.part.unit,
        "rows": [row for judged in one.parts for row in _lines(judged)],
    }


def _lines(judged: JudgedPart) -> Iterator[dict[str, str]]:
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


def terminal_table(answers: Sequence[ClaimVerdict]) -> list[FittedTable | str]:
    """Return the output for the terminal: table, reasons and tally."""
    rows = [
        [one.id, _(one.verdict), claimed(one.parts[0].part), computed(one.parts[0]), one.parts[0].part.unit]
        for one in answers
    ]
    table = FittedTable(("id", "verdict", "claimed", "computed", "unit"), rows, frozenset({0, 1, 4}))
    reasons = [f"{one.id} {_(one.verdict)}: {reason(one)}" for one in answers]
    return [table, "", *reasons, "", _("{count} claims: {tally}", count=len(answers), tally=tally(answers))]


def check_and_write_claims(
    files: Mapping[str, Path],
    catalog: Catalog,
    out: Path,
    workers: int,
    quiet: bool,
    command: Sequence[str],
    force: bool = False,
) -> list[ClaimVerdict]:
    """Check the claims in *files* (id -> path) and write their tables and pages to *out*.

    Raises ScenarioErrors, FolderRefused.
    """
    question = {"command": "claims", "values": {"claims": " ".join(files)}}
    record = begin_question(out, question, command, force)
    with CaseProgress(quiet, "checking", "claims") as progress:
        answers = check_claims(files, catalog, workers, progress)
    with replaced_together(out, record | {"claims": len(answers)}, points=()) as folder:
        write_claims(folder, answers)
    return answers
