"""Parallel map over independent items with forked processes."""

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")

_tasks: dict[str, Any] = {}


def each(work: Callable[[A], B], items: Sequence[A], chunk: int = 1) -> list[B]:
    """Return `work(item)` for all *items*, in order.

    The processes inherit *work* and the items; results are sent back.
    """
    _tasks["work"], _tasks["items"] = work, items
    with multiprocessing.get_context("fork").Pool() as pool:
        return pool.map(_at, range(len(items)), chunksize=chunk)


def _at(place: int) -> Any:
    return _tasks["work"](_tasks["items"][place])
