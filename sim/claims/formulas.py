"""Formulas that a claim may name: plain functions of numbers. A new formula is a function here."""

from collections.abc import Callable
from inspect import signature
from itertools import pairwise
from math import prod

from sim.scenario.claim import FormulaFigure
from sim.scenario.reading.errors import did_you_mean
from sim.units import HOURS_PER_MONTH, HOURS_PER_YEAR, SECONDS_PER_DAY

FLOP_PER_PARAM_AND_TOKEN = 6
"""Forward and backward pass (Kaplan et al., arXiv 2001.08361, 2.1)."""

Formula = Callable[..., float]
FORMULAS: dict[str, Formula] = {}


def formula(function: Formula) -> Formula:
    """Registers *function* under its name."""
    FORMULAS[function.__name__] = function
    return function


def formula_wrong(spec: FormulaFigure) -> str:
    """Return why there is no such formula, or why it does not take these arguments; empty if it does."""
    if spec.formula not in FORMULAS:
        return f"there is no formula {spec.formula!r}{did_you_mean(spec.formula, FORMULAS)}"
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
    """*top* over *bottom*."""
    return top / bottom


@formula
def change(now: float, before: float) -> float:
    """How much *now* is above *before*, as a fraction of it."""
    return now / before - 1


@formula
def saving_percent(now: float, before: float) -> float:
    """How much less *now* is than *before*, in per cent of it."""
    return 100 * (1 - now / before)


@formula
def percent_of(part: float, whole: float) -> float:
    """*part* in per cent of the *whole*."""
    return 100 * part / whole


@formula
def difference(first: float, second: float) -> float:
    """*first* less *second*."""
    return first - second


@formula
def total(*parts: float) -> float:
    """Sum of the *parts*."""
    return sum(parts)


@formula
def product(*factors: float) -> float:
    """Product of the *factors*."""
    return prod(factors)


@formula
def smallest(*values: float) -> float:
    """The least of the *values*."""
    return min(values)


@formula
def largest(*values: float) -> float:
    """The greatest of the *values*."""
    return max(values)


@formula
def rising(*values: float) -> float:
    """1 where each value is above the one before, else 0."""
    return float(all(a < b for a, b in pairwise(values)))


@formula
def straight_line_usd_per_h(price_usd: float, years: float) -> float:
    """A purchase written off evenly over its life."""
    return price_usd / (years * HOURS_PER_YEAR)


@formula
def month_to_hour(usd_per_month: float, share: float) -> float:
    """An hour's part of a *share* of an operating cost per month."""
    return usd_per_month * share / HOURS_PER_MONTH


@formula
def breakeven_days(fixed_usd_per_h: float, rent_usd_per_day: float, running_usd_per_day: float) -> float:
    """Days of use a year from which on owning costs less than renting by the day.

    Owning costs *fixed_usd_per_h* all year and *running_usd_per_day* on a day of use.
    """
    return fixed_usd_per_h * HOURS_PER_YEAR / (rent_usd_per_day - running_usd_per_day)


@formula
def activation_bytes(sequence: float, batch: float, hidden: float, layers: float, tensor: float) -> float:
    """Activations kept for the backward pass, attention scores apart (Korthikanti et al., arXiv 2205.05198, eq. 2)."""
    return sequence * batch * hidden * layers * (10 + 24 / tensor)


@formula
def training_days(params: float, tokens: float, gpus: float, flops: float, mfu: float) -> float:
    """Days to train *params* on *tokens* where each GPU reaches *mfu* of *flops*."""
    return FLOP_PER_PARAM_AND_TOKEN * params * tokens / (gpus * flops * mfu) / SECONDS_PER_DAY


@formula
def gpus_for_training(params: float, tokens: float, days: float, flops: float, mfu: float) -> float:
    """GPUs that train *params* on *tokens* in so many *days*."""
    return training_days(params, tokens, 1, flops, mfu) / days
