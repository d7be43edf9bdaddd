"""The service level in words, and figures beside it with enough digits to distinguish the two."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from math import isclose, isfinite, nan
from typing import Any

from sim.language import _
from sim.report.words.text import listing, percent, plain, seconds, steady
from sim.scenario.sections.slo import PercentileLimit, Slo
from sim.study.metrics.service_level import Reading, Standing

SAME = 1e-12
"""What differs by less is a rounding error of a mean."""
NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E"}


def exactly(share: float) -> str:
    """A share that was asked for, with all its digits: `95.5 %`."""
    return f"{100 * share:.10g}\u00a0%"


def share_beside(share: float, target: float) -> str:
    """A share with enough digits to distinguish it from its *target*.

    >>> [share_beside(share, 0.95).replace(chr(160), " ") for share in (0.9496, 0.97, 0.95)]
    ['94.96 %', '97 %', '95 %']
    """
    if isclose(share, target, rel_tol=SAME):
        return exactly(target)
    text = percent(share)
    if text not in (percent(target), exactly(target)):
        return text
    for digits in count(1):
        text, other = f"{100 * share:.{digits}f}", f"{100 * target:.{digits}f}"
        if text != other and (float(text) < 100 or share >= 1):
            return f"{text}\u00a0%"
    raise AssertionError  # two numbers differ in some digit


def seconds_beside(value: float, limit: float) -> str:
    """A latency with enough digits to distinguish it from its *limit*.

    >>> seconds_beside(2.0004, 2.0), seconds_beside(1.5, 2.0)
    ('2.0004 s', '1.50 s')
    """
    return _beside(value, limit, seconds)


def number_beside(value: float, limit: float) -> str:
    """A number beside its limit, with as many digits as show the difference; the unit stands elsewhere."""
    return _beside(value, limit, steady)


def _beside(value: float, limit: float, show: Callable[[float, int], str]) -> str:
    if not isfinite(value) or isclose(value, limit, rel_tol=SAME):
        return show(value, 3)
    return next(text for digits in count(3) if (text := show(value, digits)) != show(limit, digits))


def name_of(limit: PercentileLimit) -> str:
    """`TTFT p99`."""
    return f"{NAMES[limit.latency]} p{limit.percent:g}"


def percentiles_shown(slo: Slo, latency: str) -> dict[str, float | None]:
    """Which percentiles of a latency are shown, with their limits: those that the service level names, else the 95th,
    with the limit of each request.
    """
    named = {f"p{one.percent:g}": one.limit_s for one in slo.percentiles if one.latency == latency}
    return dict(named) if named else {"p95": slo.per_request.get(latency)}


def latency_columns(slo: Slo) -> dict[str, str]:
    """Columns of the latencies that are shown, with headings: `ttft_s_p99`, TTFT p99."""
    names = [name for name in NAMES if name != "e2e_s" or isinstance(slo.e2e_s, dict)]
    shown = [(name, part) for name in names for part in percentiles_shown(slo, name)]
    return {f"{name}_{part}": f"{NAMES[name]} {part}" for name, part in shown}


def asked_for(slo: Slo) -> str:
    """The whole service level: `95 % of the requests within TTFT 3 s and TPOT 0.1 s, TTFT p99 at most 2 s`."""
    limits = [f"{NAMES[name]} {_limit(limit_s)}" for name, limit_s in slo.per_request.items()]
    shares = (
        [_("{exactly} of the requests within {listing}", exactly=exactly(slo.attainment), listing=listing(limits))]
        if limits
        else []
    )
    return _(", ").join(
        [
            *shares,
            *(
                _("{name_of} at most {limit}", name_of=name_of(one), limit=_limit(one.limit_s))
                for one in slo.percentiles
            ),
        ]
    )


def _limit(limit_s: float) -> str:
    return f"{plain(limit_s, 9)} s"


def readings(slo: Slo, row: Mapping[str, Any]) -> list[str]:
    """What a point of summary.csv attains of each goal, beside what is asked for."""
    share = row.get("slo_attainment")
    told = []
    if slo.per_request and share is not None:
        asked = exactly(slo.attainment)
        told.append(
            _(
                "{share_beside} of the requests are within its limits ({asked} asked for)",
                share_beside=share_beside(share, slo.attainment),
                asked=asked,
            )
        )
    for one in slo.percentiles:
        value = row.get(one.column)
        if value is not None:
            told.append(
                _(
                    "{name_of} is {seconds_beside} (at most {limit})",
                    name_of=name_of(one),
                    seconds_beside=seconds_beside(value, one.limit_s),
                    limit=_limit(one.limit_s),
                )
            )
    return told


def doubts_told(standing: Standing) -> list[str]:
    """What leaves the verdict open: goals whose limit lies within the interval of what is attained, a growing queue."""
    told = [f"{one.of}: {_doubt(one)}" if one.of else _doubt(one) for one in standing.doubts]
    return [*told, _("the queue seems to grow")] if standing.outgrown else told


def why_open(standings: Sequence[Standing], interval: str) -> str:
    """Return why the verdicts of *standings* are open: *interval* where a limit lies within one, or a growing queue."""
    reasons = [_(interval)] if any(one.doubts for one in standings) else []
    if any(one.outgrown for one in standings):
        reasons.append(_("the queue seems to grow; a longer horizon_s shows whether it does"))
    return _("; ").join(reasons)


def _doubt(one: Reading) -> str:
    value, (low, high) = one.attained.value, one.attained.interval or (nan, nan)
    if one.by_share or one.goal.percentile is None:
        return _(
            "{value} of the requests, interval {low} to {high}, {exactly} asked for",
            value=share_beside(value, one.target),
            low=share_beside(low, one.target).removesuffix("\u00a0%"),
            high=share_beside(high, one.target),
            exactly=exactly(one.target),
        )
    return _(
        "{name_of} {around}, at most {limit} asked for",
        name_of=name_of(one.goal.percentile),
        around=f"{seconds_beside(value, one.target)} ± {seconds((high - low) / 2, 2)}",
        limit=_limit(one.target),
    )


def unjudged(slo: Slo) -> list[str]:
    """What an answer for a window does not say of the service level: a sentence, or none."""
    if slo.availability is None:
        return []
    return [
        _(
            "The service level asks for {share} over years of failures: capacity and size answer that. Here only the "
            "failures of the simulated window count.",
            share=share_beside(slo.availability, slo.availability),
        )
    ]
