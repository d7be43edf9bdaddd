"""Work on independent items spread over the cores by forked processes."""

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")

_tasks: dict[str, Any] = {}


def each(work: Callable[[A], B], items: Sequence[A], chunk: int = 1) -> list[B]:
    """`work(item)` of all *items*, in their order; *work* and items are inherited, results are sent back."""
    _tasks["work"], _tasks["items"] = work, items
    with multiprocessing.get_context("fork").Pool() as pool:
        return pool.map(_at, range(len(items)), chunksize=chunk)


def _at(place: int) -> Any:
    return _tasks["work"](_tasks["items"][place])
