"""Which LoRA adapter a request asks for."""

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
    """LoRA adapters by popularity: `count` of them by Zipf's law, or `weights` by name. A session keeps its own."""

    count: Count | None = None
    """adapter-1, adapter-2, ...: number k is asked for in proportion to 1 / k^zipf."""
    zipf: NonNegative | None = None
    """Exponent; left out: 1. 0: all are alike."""
    weights: dict[AdapterName, Positive] | None = None
    """In place of `count`: name -> how often it is asked for, in any unit."""
    base_share: Annotated[NonNegative, Field(le=1)] = 0.0
    """Share of the requests that ask for the model itself."""

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        if (self.count is None) == (self.weights is None):
            raise ValueError("give count, or weights by name")
        if self.weights is not None and (not self.weights or self.zipf is not None):
            raise ValueError("weights: need a name at least, and stand without zipf")
        return self

    @property
    def names(self) -> list[str]:
        """All of them, in order."""
        return list(self.weights) if self.weights else [f"adapter-{k}" for k in range(1, self._most + 1)]

    def ends(self) -> NDArray[np.float64]:
        """Where the part of each name ends in [0, 1]; behind the last one stands the model itself."""
        weights = (
            list(self.weights.values()) if self.weights else [k**-self._exponent for k in range(1, self._most + 1)]
        )
        ends: NDArray[np.float64] = np.cumsum(weights) / sum(weights) * (1 - self.base_share)
        return ends

    @property
    def _most(self) -> int:
        return self.count or 0

    @property
    def _exponent(self) -> float:
        return 1.0 if self.zipf is None else self.zipf


class AdapterDraws:
    """The adapter of each request: its tenant's, else drawn, by session or by its place in the order of arrival."""

    def __init__(
        self, adapters: Adapters | None, tenants: tuple[Tenant, ...], streams: Streams, known: Iterable[str] = ()
    ) -> None:
        """*known* are all names that requests at the same replicas may ask for; left out: these alone."""
        self._of_tenant = {tenant.name: tenant.adapter for tenant in tenants if tenant.adapter is not None}
        self._streams = streams
        self._names = [*(adapters.names if adapters else ()), "", ""]
        """The last one stands for what rounding leaves behind the end."""
        self._ends = adapters.ends() if adapters else np.array([])
        self._drawn: list[str] = []
        self._numbers: dict[str, int] = {"": 0}
        for name in [*known, *self._names, *self._of_tenant.values()]:
            self._numbers.setdefault(name, len(self._numbers))
        self._salt = streams("adapter").bytes(8)

    def name(self, request: Request) -> str:
        """What *request* asks for; empty: the model itself."""
        told = self._of_tenant.get(request.tenant)
        if told is not None:
            return told
        if request.session:
            digest = blake2b(request.session.encode(), digest_size=8, key=self._salt).digest()
            return self._at(np.array([int.from_bytes(digest) / 2**64]))[0]
        while request.index >= len(self._drawn):
            self._drawn += self._at(uniforms(self._streams, "adapter", len(self._drawn), CHUNK))
        return self._drawn[request.index]

    def _at(self, u: NDArray[np.float64]) -> list[str]:
        """Names at the uniform numbers *u*."""
        return [self._names[place] for place in np.searchsorted(self._ends, u, side="right").tolist()]

    def give(self, request: Request) -> None:
        """Gives *request* its adapter. KV depends on it: blocks of other adapters have other ids."""
        request.adapter = self.name(request)
        if request.block_hashes:
            number, of = self._numbers[request.adapter], len(self._numbers)
            request.block_hashes = tuple(block * of + number for block in request.block_hashes)
