"""Requests of a log as arrays: what a fleet of independent replicas keeps of each request.

`RequestColumns` is such a log. `column` and `texts` read a field of the requests of any log at once.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from math import nan
from operator import attrgetter
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from sim.fleet.arrivals import ROWS_AT_ONCE
from sim.records import DEFAULT_OPTIONS, Request, RequestOptions
from sim.workload.requests import RequestTable

RESULTS: dict[str, tuple[type, float]] = {
    **dict.fromkeys(("started_s", "first_token_s", "finished_s"), (np.float64, nan)),
    **dict.fromkeys(("cached_tokens", "preemptions"), (np.int32, 0)),
}
"""Fields that a replica sets -> type and initial value."""
COLUMNS: dict[str, tuple[type, float]] = {"priority": (np.int64, 0), "replica": (np.int32, -1), **RESULTS}
"""Fields with an array only where some request has another value than the initial one."""
OF_OPTIONS = frozenset(one.name for one in fields(RequestOptions))
ALL = slice(None)


class RequestColumns(Sequence[Request]):
    """Requests as arrays, at 38 to 44 bytes each in place of 250 and more; reading one makes it a `Request`.

    They have been on one replica at most, where they came when they arrived.

    Parameters
    ----------
    table
        Requests as the workload offers them.
    numbers
        Index of each request; None: 0, 1, 2, ...

    """

    def __init__(self, table: RequestTable, numbers: NDArray[Any] | None = None) -> None:
        self._columns: dict[str, NDArray[Any]] = {
            "arrived_s": table.arrived_s,
            "prompt_tokens": _narrow(table.prompt_tokens),
            "output_tokens": _narrow(table.output_tokens),
        }
        self._numbers = numbers
        self.options: dict[int, RequestOptions] = {}
        """Position -> options of a request that has its own."""

    def __len__(self) -> int:
        return len(self._columns["arrived_s"])

    @overload
    def __getitem__(self, place: int) -> Request: ...
    @overload
    def __getitem__(self, place: slice) -> list[Request]: ...
    def __getitem__(self, place: int | slice) -> Request | list[Request]:
        """Return the request at *place*, or the requests of a slice."""
        chosen = range(len(self))[place]
        if isinstance(chosen, int):
            return next(self._requests(chosen, chosen + 1))
        return [self[one] for one in chosen]

    def __iter__(self) -> Iterator[Request]:
        for start in range(0, len(self), ROWS_AT_ONCE):
            yield from self._requests(start, start + ROWS_AT_ONCE)

    def rows(self, part: slice) -> Iterator[tuple[int, float, int, int, int, int]]:
        """Yield the fields of a *part* of the requests that are known when they arrive.

        They are index, arrival [s], prompt and output tokens, priority and replica.
        """
        numbers = np.arange(*part.indices(len(self))) if self._numbers is None else self._numbers[part]
        names = ("arrived_s", "prompt_tokens", "output_tokens", "priority", "replica")
        return zip(numbers.tolist(), *(self.column(name, part).tolist() for name in names), strict=True)

    def _requests(self, start: int, stop: int) -> Iterator[Request]:
        """Yield the requests at the positions *start* to *stop*."""
        part, options = slice(start, stop), self.options
        results = zip(*(self.column(name, part).tolist() for name in RESULTS), strict=True)
        for place, (row, values) in enumerate(zip(self.rows(part), results, strict=True), start):
            index, arrived_s, prompt_tokens, output_tokens, priority, replica = row
            request = Request(index, arrived_s, prompt_tokens, output_tokens, priority)
            request.replica = replica
            for name, value in zip(RESULTS, values, strict=True):
                setattr(request, name, value)
            if replica >= 0:
                request.came_s = arrived_s
            if place in options:
                request.options = options[place]
            yield request

    def unserved(self, places: NDArray[Any]) -> "RequestColumns":
        """Return the requests at *places* as they were before a replica served them; they keep their indices."""
        found = RequestColumns.__new__(RequestColumns)
        found._columns = {name: values[places] for name, values in self._columns.items() if name not in RESULTS}
        found._numbers = places if self._numbers is None else self._numbers[places]
        found.options = {}
        if self.options:
            own = ((here, self.options.get(place)) for here, place in enumerate(places.tolist()))
            found.options = {here: options for here, options in own if options is not None}
        return found

    def set(self, name: str, values: NDArray[Any], places: NDArray[Any] | None = None) -> None:
        """Set the field *name* of the requests at *places* (None: the whole numbers of all)."""
        kind, initial = COLUMNS[name]
        if name not in self._columns and bool((np.isnan(values) if np.isnan(initial) else values == initial).all()):
            return
        if places is None:
            self._columns[name] = _narrow(values)
            return
        if name not in self._columns:
            self._columns[name] = np.full(len(self), initial, kind)
        self._columns[name][places] = values

    def column(self, name: str, part: slice = ALL) -> NDArray[Any]:
        """Return the field *name* of all or a *part* of the requests: a number, or whether `rejected` or `given_up`."""
        if name in self._columns:
            return self._columns[name][part]
        if name in COLUMNS:
            kind, initial = COLUMNS[name]
            return np.full(len(range(len(self))[part]), initial, kind)
        found = np.zeros(len(self), bool)
        for place, options in self.options.items():
            found[place] = options.rejected if name == "rejected" else options.gave_up != ""
        return found[part]

    def texts(self, name: str) -> list[str]:
        """Return the text *name* of every request: one of `RequestOptions`, or its `status`."""
        if name == "status":
            found: list[str] = np.where(
                self.column("rejected"),
                "rejected",
                np.where(np.isfinite(self.column("finished_s")), "finished", "unfinished"),
            ).tolist()
            return found
        found = [getattr(DEFAULT_OPTIONS, name)] * len(self)
        for place, options in self.options.items():
            found[place] = getattr(options, name)
        return found


def _narrow(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return whole *numbers* in the narrowest type of 16 bits or more that also holds the sum of two of them."""
    least, most = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    fits = (kind for kind in (np.int16, np.int32) if 2 * most <= np.iinfo(kind).max and 2 * least >= np.iinfo(kind).min)
    return numbers.astype(next(fits, np.int64))


def column(requests: Sequence[Request], name: str, kind: type) -> NDArray[Any]:
    """Return the field *name* of all *requests*, as an array of *kind* or of a narrower type."""
    if isinstance(requests, RequestColumns):
        return requests.column(name)
    return np.fromiter(_values(requests, name), kind, len(requests))


def texts(requests: Sequence[Request], name: str) -> list[str]:
    """Return the text *name* of all *requests*."""
    return requests.texts(name) if isinstance(requests, RequestColumns) else list(_values(requests, name))


def _values(requests: Sequence[Request], name: str) -> Iterator[Any]:
    """Return the field *name* of each of *requests*, read past the properties of a request."""
    return map(attrgetter(f"options.{name}" if name in OF_OPTIONS else name), requests)


def options_of(requests: Sequence[Request]) -> Collection[RequestOptions]:
    """Return the options of *requests* that are not the default ones, some perhaps several times."""
    if isinstance(requests, RequestColumns):
        return requests.options.values()
    every = list(_values(requests, "options"))
    if {id(DEFAULT_OPTIONS)}.issuperset(map(id, every)):
        return ()
    found = dict(zip(map(id, every), every, strict=True))
    found.pop(id(DEFAULT_OPTIONS), None)
    return found.values()
