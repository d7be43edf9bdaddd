"""Published statistics of real traffic: data/workloads/<id>.yaml."""

from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sim.catalogue.data_folder import UnknownId, data_root
from sim.catalogue.value import Sourced, Value
from sim.spec import Fraction, NonNegative, Positive, Spec
from sim.yamlio import read


class PublishedTable(Sourced):
    """Published table of a statistic, with its mean."""

    mean: Positive

    def mean_value(self) -> Value:
        """Return the mean with the table's provenance."""
        return Value(value=self.mean, **{name: getattr(self, name) for name in Sourced.model_fields})


class Quantiles(PublishedTable):
    """Quantile table of a length, linear between its points.

    The mean [tokens] is that of the requests themselves, not of the table.
    """

    quantiles: Annotated[tuple[tuple[Fraction, Positive], ...], Field(min_length=2)]
    """Pairs of cumulative probability, from 0 to 1, and length [tokens]; both ascending."""

    @model_validator(mode="after")
    def _rises_from_0_to_1(self) -> Self:
        probabilities, tokens = zip(*self.quantiles, strict=True)
        if (probabilities[0], probabilities[-1]) != (0, 1):
            raise ValueError("quantiles must begin at probability 0 and end at 1")
        if list(probabilities) != sorted(probabilities) or list(tokens) != sorted(tokens):
            raise ValueError("neither probabilities nor tokens may decrease")
        return self

    def at(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the lengths at the cumulative probabilities *u* [tokens]."""
        table = np.array(self.quantiles)
        tokens: NDArray[np.float64] = np.interp(u, table[:, 0], table[:, 1])
        return tokens


class HourlyRates(PublishedTable):
    """Requests per second in each hour of a day or a week."""

    rates: Annotated[tuple[NonNegative, ...], Field(min_length=1)]


class Published(Spec):
    """Published statistics of one service's traffic; prompt and output lengths are given without their correlation."""

    id: str
    name: str
    requests: Value | None = None
    """Number of requests that the statistics are based on."""
    rate_rps: Value | None = None
    interarrival_cv: Value | None = None
    """Coefficient of variation of the gaps between arrivals (standard deviation over mean)."""
    prompt_tokens: Quantiles | None = None
    output_tokens: Quantiles | None = None
    total_tokens: Quantiles | None = None
    """Total length of prompt and output, if nothing else was published."""
    hourly_rps: HourlyRates | None = None


@lru_cache
def published(id: str) -> Published:
    """Return the published statistics with id *id*. Raises UnknownId."""
    known = published_ids()
    if id not in known:
        raise UnknownId("workload", id, tuple(get_close_matches(id, known)))
    return Published.model_validate(read(data_root() / "workloads" / f"{id}.yaml").data)


def published_ids() -> list[str]:
    """Return all ids in data/workloads."""
    return sorted(file.stem for file in (data_root() / "workloads").glob("*.yaml"))


def length_table(name: str) -> Quantiles:
    """Return the table *name*: `<id>/prompt`, `<id>/output` or `<id>/total`. Raises UnknownId."""
    id, _, part = name.partition("/")
    if id not in published_ids():
        close = get_close_matches(id, published_ids())
        raise UnknownId("length table", name, tuple(f"{other}/{part or 'prompt'}" for other in close))
    of = published(id)
    tables = {"prompt": of.prompt_tokens, "output": of.output_tokens, "total": of.total_tokens}
    table = tables.get(part)
    if table is None:
        raise UnknownId("length table", name, tuple(f"{id}/{key}" for key in tables if tables[key]))
    return table


def hourly_table(id: str) -> HourlyRates:
    """Return the hourly rates of the statistics with id *id*. Raises UnknownId."""
    hourly = published(id).hourly_rps
    if hourly is None:
        raise UnknownId("hourly profile", id, tuple(other for other in published_ids() if published(other).hourly_rps))
    return hourly
