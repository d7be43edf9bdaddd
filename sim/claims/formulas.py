"""Formulas that claims may use: functions of numbers, registered with the decorator `formula`."""

from collections.abc import Callable
from inspect import signature
from itertools import pairwise
from math import prod

from sim.message import Message
from sim.scenario.claim import FormulaFigure
from sim.units import HOURS_PER_MONTH, HOURS_PER_YEAR, SECONDS_PER_DAY
from sim.validation import did_you_mean

FLOP_PER_PARAM_AND_TOKEN = 6
"""FLOP of forward and backward pass per parameter and token (Kaplan et al., arXiv 2001.08361, 2.1)."""

Formula = Callable[..., float]
FORMULAS: dict[str, Formula] = {}


def formula(function: Formula) -> Formula:
    """Register *function* under its name."""
    FORMULAS[function.__name__] = function
    return function


def formula_wrong(spec: FormulaFigure) -> str:
    """Return the reason why the formula or its arguments are invalid; empty if they are valid."""
    if spec.formula not in FORMULAS:
        return Message("there is no formula {formula!r}{hint}", spec.formula, did_you_mean(spec.formula, FORMULAS))
    try:
        if isinstance(spec.of, dict):
            signature(FORMULAS[spec.formula]).bind(**spec.of)
        else:
            signature(FORMULAS[spec.formula]).bind(*spec.of)
    except TypeError as error:
        return f"{spec.formula}: {error}"
    return ""


@formula
def ratio(top: float, bottom: float) -> float:
    """Return *top* / *bottom*."""
    return top / bottom


@formula
def change(now: float, before: float) -> float:
    """Return the relative change from *before* to *now*."""
    return now / before - 1


@formula
def saving_percent(now: float, before: float) -> float:
    """Return the relative decrease from *before* to *now* [%]."""
    return 100 * (1 - now / before)


@formula
def percent_of(part: float, whole: float) -> float:
    """Return *part* in per cent of *whole*."""
    return 100 * part / whole


@formula
def difference(first: float, second: float) -> float:
    """Return *first* - *second*."""
    return first - second


@formula
def total(*parts: float) -> float:
    """Return the sum of *parts*."""
    return sum(parts)


@formula
def product(*factors: float) -> float:
    """Return the product of *factors*."""
    return prod(factors)


@formula
def smallest(*values: float) -> float:
    """Return the smallest of *values*."""
    return min(values)


@formula
def largest(*values: float) -> float:
    """Return the largest of *values*."""
    return max(values)


@formula
def rising(*values: float) -> float:
    """Return 1 if *values* are strictly increasing, else 0."""
    return float(all(a < b for a, b in pairwise(values)))


@formula
def straight_line_usd_per_h(price_usd: float, years: float) -> float:
    """Return the straight-line depreciation of a purchase [USD/h]."""
    return price_usd / (years * HOURS_PER_YEAR)


@formula
def month_to_hour(usd_per_month: float, share: float) -> float:
    """Return the cost per hour of a *share* of a monthly cost [USD/h]."""
    return usd_per_month * share / HOURS_PER_MONTH


@formula
def breakeven_days(fixed_usd_per_h: float, rent_usd_per_day: float, running_usd_per_day: float) -> float:
    """Return the days of use per year above which owning costs less than renting by the day.

    Owning costs *fixed_usd_per_h* all year and *running_usd_per_day* on a day of use.
    """
    return fixed_usd_per_h * HOURS_PER_YEAR / (rent_usd_per_day - running_usd_per_day)


@formula
def activation_bytes(sequence: float, batch: float, hidden: float, layers: float, tensor: float) -> float:
    """Return the activations stored for the backward pass, without attention scores [bytes].

    References
    ----------
    .. [1] Korthikanti et al., arXiv 2205.05198, equation 2.

    """
    return sequence * batch * hidden * layers * (10 + 24 / tensor)


@formula
def training_days(params: float, tokens: float, gpus: float, flops: float, mfu: float) -> float:
    """Return the days to train *params* on *tokens* if each GPU reaches *mfu* of *flops*."""
    return FLOP_PER_PARAM_AND_TOKEN * params * tokens / (gpus * flops * mfu) / SECONDS_PER_DAY


@formula
def gpus_for_training(params: float, tokens: float, days: float, flops: float, mfu: float) -> float:
    """Return the GPUs needed to train *params* on *tokens* in *days* days."""
    return training_days(params, tokens, 1, flops, mfu) / days
