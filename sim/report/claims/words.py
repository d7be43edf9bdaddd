"""Figures, rules and reasons of claims in words."""

import re

from sim.language import N_, _
from sim.report.words.text import plain
from sim.scenario.claims.claim import PLACEHOLDER, Part, Rule
from sim.study.claims.answer import Answer
from sim.study.claims.figure import Figure
from sim.study.claims.rules import Finding, Judged

ARTICLES = {
    "000": N_("L40S, A10, A40, A100 and A6000 for inference"),
    "001": N_("A100, H100 and RTX 4090: value for money"),
    "002": N_("Choosing a graphics card in the age of AI"),
    "003": N_("Choosing GPUs for deep learning and language models"),
    "004": N_("Training against inference: H100, A6000, L40S and A100"),
}
"""Id of an article -> its subject, in our words."""
YES_NO = "yes/no"
EXACT = 6
"""Digits of a limit, which a file states."""


def filled(text: str, figures: dict[str, Figure]) -> str:
    """*text* with its figures in place of `{name}`, by Python's format after a colon: `{price:.2f}`.

    >>> filled("{cards:.0f} cards, {usd} USD", {"cards": Figure(4.2), "usd": Figure(1234.5)})
    '4 cards, 1,234 USD'
    """

    def put(found: re.Match[str]) -> str:
        value = figures[found[1]].value
        return format(value, found[2]) if found[2] else plain(value)

    return " ".join(PLACEHOLDER.sub(put, text).split())


def reason(answer: Answer) -> str:
    """Why the verdict is what it is."""
    return filled(answer.claim.reason, answer.figures)


def notes(answer: Answer) -> list[str]:
    """What the verdict rests on."""
    return [filled(note, answer.figures) for note in answer.claim.notes]


def shown(value: float | None, unit: str) -> str:
    """A number as a reader wants it: three digits, yes or no where it is one of them, a share as per cent."""
    if value is None:
        return ""
    if unit == YES_NO:
        return _("yes") if value else _("no")
    return plain(value)


def claimed(part: Part) -> str:
    """The article's number; empty where it names none."""
    return shown(part.claimed, part.unit)


def computed(judged: Judged) -> str:
    """The figure, or the lowest and the highest of several conditions."""
    texts = [shown(one.figure.value, judged.part.unit) for one in ordered(judged)]
    return texts[0] if texts[0] == texts[-1] else _("{low} to {high}", low=texts[0], high=texts[-1])


def ordered(judged: Judged) -> list[Finding]:
    """By figure."""
    return sorted(judged.findings, key=lambda one: one.figure.value)


def interval(one: Finding, unit: str) -> str:
    """The 95 % interval: `0.93 to 0.97`; empty where there is none."""
    if one.figure.half_width is None or unit == YES_NO:
        return ""
    low, high = one.figure.ends
    return _("{low} to {high}", low=plain(low), high=plain(high))


def rule(holds: Rule, unit: str) -> str:
    """What the figure has to be."""
    if holds.within is not None:
        return _("within {within:g} %", within=100 * holds.within)
    if holds.between is not None:
        return _("{low} to {high}", low=plain(holds.between[0], EXACT), high=plain(holds.between[1], EXACT))
    if holds.at_least is not None:
        return _("yes") if unit == YES_NO else _("at least {exact}", exact=plain(holds.at_least, EXACT))
    assert holds.at_most is not None  # a rule has one key
    return _("no") if unit == YES_NO else _("at most {exact}", exact=plain(holds.at_most, EXACT))
