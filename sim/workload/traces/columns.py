"""From columns of text to checked numbers. Whole columns at once; value by value only where something is wrong."""

from collections.abc import Sequence
from math import nan

import numpy as np
from numpy.typing import NDArray

from sim.decimals import numbers
from sim.workload.traces.faults import Faults

LARGEST = 2**53
"""Whole numbers up to here are exact."""
LATEST_S = 1e9
"""The last moment at which a request may arrive, some 32 years after the start: later ones are dates."""


def seconds(texts: Sequence[object], name: str, lines: Sequence[int], faults: Faults) -> NDArray[np.float64]:
    """A column of times: finite, not negative, never falling."""
    values = _numbers(texts, name, lines, faults)
    negative = values < 0
    faults.add_rows(np.flatnonzero(negative), lines, lambda row: f"{name} must not be negative: {texts[row]}")
    check_order(np.where(negative, nan, values), texts, name, lines, faults)
    return values


def since_the_start(
    arrived_s: NDArray[np.float64], texts: Sequence[object], name: str, lines: Sequence[int], faults: Faults
) -> NDArray[np.float64]:
    """*arrived_s* as they are; the first that is a date (seconds since 1970) goes to *faults*."""
    late = np.flatnonzero(arrived_s > LATEST_S)[:1]
    why = "counts from the start of the trace: take the first request's time from all of them"
    faults.add_rows(late, lines, lambda row: f"{name} {why}, not {texts[row]}")
    return arrived_s


def check_order(
    times: NDArray[np.float64], texts: Sequence[object], name: str, lines: Sequence[int], faults: Faults
) -> None:
    """Every time is at least the one before it; nan, a fault already reported, is passed over."""
    known = np.flatnonzero(~np.isnan(times))
    late = np.flatnonzero(np.diff(times[known]) < 0)
    before = dict(zip(known[late + 1].tolist(), known[late].tolist(), strict=True))

    def message(row: int) -> str:
        earlier = before[row]
        return f"not sorted: {name} {texts[row]} comes after {texts[earlier]} (line {lines[earlier]})"

    faults.add_rows(known[late + 1], lines, message)


def tokens(
    texts: Sequence[object], name: str, lines: Sequence[int], faults: Faults, least: int = 1
) -> NDArray[np.int64]:
    """A column of whole numbers of at least *least*."""
    return _whole(texts, name, lines, faults, f" of at least {least}", least)


def integers(texts: Sequence[object], name: str, lines: Sequence[int], faults: Faults) -> NDArray[np.int64]:
    """A column of whole numbers of either sign."""
    return _whole(texts, name, lines, faults, "", -LARGEST)


def _whole(
    texts: Sequence[object], name: str, lines: Sequence[int], faults: Faults, bound: str, least: int
) -> NDArray[np.int64]:
    values = _numbers(texts, name, lines, faults)
    wrong = (values < least) | (values > LARGEST) | (values != np.rint(values)) & ~np.isnan(values)
    faults.add_rows(np.flatnonzero(wrong), lines, lambda row: f"{name} must be a whole number{bound}, not {texts[row]}")
    return np.where(wrong | np.isnan(values), least, values).astype(np.int64)


def _numbers(texts: Sequence[object], name: str, lines: Sequence[int], faults: Faults) -> NDArray[np.float64]:
    """Finite numbers; nan in the place of what is none, which is then reported."""
    values = numbers(texts)
    wrong = np.isnan(values)
    faults.add_rows(np.flatnonzero(wrong), lines, lambda row: f"{name} must be a number, not {_shown(texts[row])}")
    return values


def _shown(text: object) -> str:
    shown = str(text).strip(" \t\r\n")
    return repr(shown[:40]) if shown else "empty"
