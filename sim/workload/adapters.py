"""LoRA adapters of requests: their popularity, and the draw of each request's adapter."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sim.records import Request
from sim.spec import Count, NonNegative, Positive, Spec
from sim.workload.requests import Streams, uniforms
from sim.workload.tenants import Tenant

CHUNK = 4096
AdapterName = Annotated[str, Field(min_length=1, max_length=200)]


class Adapters(Spec):
    """LoRA adapters by popularity: `count` by Zipf's law, or `weights` by name. A session keeps its adapter."""

    count: Count | None = None
    """Number of adapters, named adapter-1, adapter-2, ...; number k is used in proportion to 1 / k^zipf."""
    zipf: NonNegative | None = None
    """Exponent of Zipf's law; default: 1. With 0 all adapters are equally popular."""
    weights: dict[AdapterName, Positive] | None = None
    """Popularity by adapter name, in any unit, in place of `count`."""
    base_share: Annotated[NonNegative, Field(le=1)] = 0.0
    """Fraction of requests that use the base model without adapter."""

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        if (self.count is None) == (self.weights is None):
            raise ValueError("give count, or weights by name")
        if self.weights is not None and (not self.weights or self.zipf is not None):
            raise ValueError("weights: need at least one name, and cannot be combined with zipf")
        return self

    @property
    def names(self) -> list[str]:
        """Names of all adapters, in order."""
        return list(self.weights) if self.weights else [f"adapter-{k}" for k in range(1, self._number_of_adapters + 1)]

    def ends(self) -> NDArray[np.float64]:
        """Return the upper end of each name's interval in [0, 1]; the remainder is the base model."""
        weights = (
            list(self.weights.values())
            if self.weights
            else [k**-self._exponent for k in range(1, self._number_of_adapters + 1)]
        )
        ends: NDArray[np.float64] = np.cumsum(weights) / sum(weights) * (1 - self.base_share)
        return ends

    @property
    def _number_of_adapters(self) -> int:
        return self.count or 0

    @property
    def _exponent(self) -> float:
        return 1.0 if self.zipf is None else self.zipf


class AdapterDraws:
    """Adapter of each request: its tenant's, else drawn, by session or by the request's arrival number."""

    def __init__(
        self, adapters: Adapters | None, tenants: tuple[Tenant, ...], streams: Streams, known: Iterable[str] = ()
    ) -> None:
        """Initialise the draws; *known* are all adapter names used on the same replicas, by default these alone."""
        self._of_tenant = {tenant.name: tenant.adapter for tenant in tenants if tenant.adapter is not None}
        self._streams = streams
        self._names = [*(adapters.names if adapters else ()), "", ""]
        """Adapter names in order, then twice the base model: after the last interval, and for rounding at its end."""
        self._ends = adapters.ends() if adapters else np.array([])
        self._drawn: list[str] = []
        self._numbers: dict[str, int] = {"": 0}
        for name in [*known, *self._names, *self._of_tenant.values()]:
            self._numbers.setdefault(name, len(self._numbers))
        self._salt = streams("adapter").bytes(8)

    def name(self, request: Request) -> str:
        """Return the adapter of *request*; empty for the base model."""
        name = self._of_tenant.get(request.tenant)
        if name is not None:
            return name
        if request.session:
            digest = blake2b(request.session.encode(), digest_size=8, key=self._salt).digest()
            return self._at(np.array([int.from_bytes(digest) / 2**64]))[0]
        while request.index >= len(self._drawn):
            self._drawn += self._at(uniforms(self._streams, "adapter", len(self._drawn), CHUNK))
        return self._drawn[request.index]

    def _at(self, u: NDArray[np.float64]) -> list[str]:
        return [self._names[place] for place in np.searchsorted(self._ends, u, side="right").tolist()]

    def give(self, request: Request) -> None:
        """Set the adapter of *request*. KV depends on it, so blocks of different adapters get different ids."""
        request.adapter = self.name(request)
        if request.block_hashes:
            number, of = self._numbers[request.adapter], len(self._numbers)
            request.block_hashes = tuple(block * of + number for block in request.block_hashes)
