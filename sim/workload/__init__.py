"""Workloads: arrival times and lengths of the requests that a fleet receives.

`Workload` describes the requests of one service, `MergedWorkload` those of several services of one fleet.
"""

from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from sim.catalogue.value import Value
from sim.message import Message, capital, joined, placed
from sim.spec import Spec, WholeNumber
from sim.workload.adapters import AdapterDraws, Adapters
from sim.workload.arrivals import Arrivals, Burst, ClosedLoop, Constant, Gamma, Poisson, Profile
from sim.workload.lengths import Empirical, Fixed, Geometric, Lengths, Lognormal, Uniform
from sim.workload.published import PublishedTable, hourly_table, length_table
from sim.workload.requests import RequestTable, Streams, uniforms
from sim.workload.sessions import (
    OfferedSessions,
    OpenSessions,
    RecordedSessions,
    SessionDraws,
    Sessions,
    UserSessions,
    sample,
)
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS, SharedPrefix, own_block_hashes
from sim.workload.tenants import UNATTRIBUTED, Tenant, drawn_names
from sim.workload.traces import AzureTrace, BurstgptTrace, CsvTrace, MooncakeTrace, Trace, TraceError


class Workload(Spec):
    """Drawn requests (`arrivals` and `lengths`) or recorded ones (`trace`).

    Request i is the same request in every fleet and at every point of a sweep: it uses number i of each random stream.
    """

    arrivals: Arrivals | None = None
    """Arrival process of requests."""
    lengths: Lengths | None = None
    """Distributions of prompt and output length. Default: requests of one-pass services, each one unit of work. With
    `sessions` the prompt is the user's new text, without the preceding conversation."""
    sessions: Sessions | None = None
    """Conversations. `arrivals` is then the process of session starts, with a rate that still counts requests. Default:
    independent requests."""
    shared_prefix: SharedPrefix | None = None
    """Prefix shared by the prompts; default: none."""
    sent_before: WholeNumber = 0
    """Number of leading requests whose prompts, or shared prefixes, the servers have already processed: with
    enable_prefix_caching they are in the cache at the start, as after a previous run of a benchmark with the same seed.
    A cache with blocks of several kinds (vLLM's hybrid manager) starts empty nevertheless."""
    tenants: tuple[Tenant, ...] = ()
    """Tenants that share the fleet; for a trace, the tenants with a weight, a priority or a limit. Default: requests
    have no tenants."""
    adapters: Adapters | None = None
    """LoRA adapters that requests use; default: the tenants' adapters only."""
    trace: Trace | None = None
    """Recorded requests from a file, in place of drawn ones."""

    @model_validator(mode="after")
    def _drawn_or_recorded(self) -> Self:
        drawn = ("arrivals", "lengths", "sessions", "shared_prefix")
        given = [name for name in drawn if getattr(self, name) is not None]
        if self.trace is not None and given:
            raise ValueError(Message("a trace brings its own requests: remove trace or {given}", " and ".join(given)))
        if self.trace is None and "arrivals" not in given:
            only = Message("; only {given} is given", " and ".join(given)) if given else ""
            raise ValueError(Message("needs arrivals and lengths, or a trace{only}", only))
        if self.sessions is not None:
            self._sessions_fit()
        if self.sent_before and (self.lengths is None or self.sessions or self.adapters):
            raise ValueError("sent_before: needs arrivals and lengths, without sessions and adapters")
        names = [tenant.name for tenant in self.tenants]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(Message("tenants: {name!r} is given twice", twice[0]))
        if UNATTRIBUTED in names:
            raise ValueError(
                Message(
                    "tenants: {unattributed!r} is the row of costs that no request causes: choose another name",
                    UNATTRIBUTED,
                )
            )
        if self.tenants and not any(tenant.share for tenant in self.tenants):
            raise ValueError("tenants: at least one needs a share above 0")
        if self.shared_prefix is not None and self.lengths is None:
            raise ValueError("needs arrivals and lengths, or a trace; only arrivals and shared_prefix is given")
        return self

    def _sessions_fit(self) -> None:
        if self.lengths is None or self.arrivals is None:
            raise ValueError("sessions: needs arrivals and lengths")
        if self.shared_prefix is not None:
            raise ValueError("shared_prefix: sessions use system_prompt_tokens in its place")
        if isinstance(self.arrivals, Burst):
            raise ValueError("sessions: arrivals must have a rate or be a closed loop, not a burst")
        if self.arrivals.num_requests is not None:
            raise ValueError("sessions: horizon_s ends the starts of sessions: remove arrivals.num_requests")

    @property
    def of_units(self) -> bool:
        """True if requests are units of work without tokens. Raises TraceError."""
        return self.lengths is None if self.trace is None else self.trace.reading().units

    @property
    def needs_horizon(self) -> bool:
        """True if only a horizon can end the workload."""
        return self.arrivals is not None and self.arrivals.num_requests is None

    @property
    def deterministic(self) -> bool:
        """True if nothing is drawn, so that a second replication would repeat the first."""
        if self.arrivals is None:
            return True
        if self.sessions is not None or self.tenants or self.adapters is not None:
            return False
        if self.lengths is None:
            return not self.arrivals.random
        return not (self.arrivals.random or self.lengths.prompt.random or self.lengths.output.random)

    @property
    def stationary(self) -> bool:
        """True if requests keep arriving by the same law without end, so that a fleet can reach a steady state."""
        return self.arrivals is not None and not isinstance(self.arrivals, Burst | Profile)

    def verify(self) -> None:
        """Read the files that the workload names. Raises TraceError listing all faults of a trace, UnknownId."""
        if self.trace is not None:
            known = set(self.trace.requests(None).tenant or ())
            if strange := sorted({tenant.name for tenant in self.tenants} - known):
                reason = (
                    Message("the column 'tenant' has {names}", ", ".join(sorted(known))[:80])
                    if known
                    else "the trace has no tenants"
                )
                raise TraceError(
                    [(self.trace.path, 0, Message("no request is of tenant {name!r}: {reason}", strange[0], reason))]
                )
        self.facts()

    def facts(self) -> list[tuple[str, Value]]:
        """Return the published statistics that the workload uses, with their places in it. Raises UnknownId."""
        tables: list[tuple[str, PublishedTable]] = []
        if isinstance(self.arrivals, Profile) and self.arrivals.shape is not None:
            tables.append(("arrivals.shape", hourly_table(self.arrivals.shape)))
        if self.lengths is not None:
            for name, length in (("prompt", self.lengths.prompt), ("output", self.lengths.output)):
                if isinstance(length, Empirical):
                    tables.append((f"lengths.{name}.table", length_table(length.table)))
        return [(place, table.mean_value()) for place, table in tables]

    def open_table(self, streams: Streams, horizon_s: float | None) -> RequestTable:
        """Return all requests that arrive before *horizon_s* (None: all), in arrival order.

        Raises
        ------
        TraceError
            The trace cannot be read.
        ValueError
            The workload is a closed loop or has sessions, or neither a horizon nor num_requests ends the arrivals.

        """
        if self.trace is not None:
            return self.trace.requests(horizon_s)
        if self.arrivals is None or isinstance(self.arrivals, ClosedLoop) or self.sessions is not None:
            raise ValueError(
                "in sessions and in a closed loop the answers determine when requests arrive: there is no table of "
                "arrivals"
            )
        arrived_s = self.arrivals.arrivals_s(streams, horizon_s)
        prompts, outputs = self.lengths_table(streams, 0, len(arrived_s))
        hashes = self.block_hashes(streams, 0, prompts)
        names = self.tenant_names(streams, 0, len(arrived_s))
        return RequestTable(arrived_s, prompts, outputs, None, hashes, HASH_BLOCK_TOKENS, tenant=names)

    def offered_sessions(self, streams: Streams, horizon_s: float | None) -> OfferedSessions | None:
        """Return the sessions that start before *horizon_s* (None: all); None if requests are independent.

        Raises TraceError.
        """
        if self.trace is not None:
            table = self.trace.requests(horizon_s)
            return None if table.session is None else RecordedSessions(table)
        if self.sessions is None or self.lengths is None or self.arrivals is None:
            return None
        draws = SessionDraws(self.sessions, self.lengths, streams)
        if isinstance(self.arrivals, ClosedLoop):
            return UserSessions(draws, self.arrivals, streams, self.tenant_names(streams, 0, self.arrivals.concurrency))
        rate_rps = self.mean_rate_rps()
        assert rate_rps is not None
        begins = self.arrivals.model_copy(update={"rate_rps": rate_rps / self.sessions.mean_requests()})
        begins_s = begins.arrivals_s(streams, horizon_s).tolist()
        return OpenSessions(draws, begins_s, self.tenant_names(streams, 0, len(begins_s)))

    @property
    def is_open(self) -> bool:
        """True if no request waits for the answer to another one. Raises TraceError."""
        recorded = self.trace is not None and self.trace.requests(None).session is not None
        return not recorded and self.sessions is None and self.closed_loop() is None

    def closed_loop(self) -> ClosedLoop | None:
        """Return the clients with their think time if the workload is a closed loop, else None."""
        return self.arrivals if isinstance(self.arrivals, ClosedLoop) else None

    def lengths_table(self, streams: Streams, start: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the prompt and output tokens of drawn requests *start* to *start + count*.

        The result does not depend on the division into calls. Without lengths a request is one unit of work: no prompt
        and one output token. Requests of sessions are counted session by session, each prompt including the preceding
        conversation.
        """
        if self.sessions is not None and self.lengths is not None:
            turns = list(sample(SessionDraws(self.sessions, self.lengths, streams), start, count))
            prompts, outputs = [turn.prompt_tokens for turn in turns], [turn.output_tokens for turn in turns]
            return np.array(prompts, np.int64), np.array(outputs, np.int64)
        if self.lengths is None:
            return np.zeros(count, np.int64), np.ones(count, np.int64)
        return self.lengths.drawn(streams, start, count)

    def block_hashes(
        self, streams: Streams, start: int, prompt_tokens: NDArray[np.int64]
    ) -> list[tuple[int, ...]] | None:
        """Return the ids of the leading blocks that drawn requests from *start* on share; None if they share none."""
        if self.shared_prefix is not None:
            return self.shared_prefix.block_hashes(streams, start, prompt_tokens.tolist())
        return own_block_hashes(start, prompt_tokens.tolist(), self.sent_before) if self.sent_before else None

    @property
    def names_tenants(self) -> bool:
        """True if requests have tenants. Raises TraceError."""
        return bool(self.tenants) or (self.trace is not None and self.trace.requests(None).tenant is not None)

    @property
    def known_tenants(self) -> list[str]:
        """Names of the tenants; empty if requests have no tenants. Raises TraceError."""
        if self.trace is None:
            return [tenant.name for tenant in self.tenants]
        return sorted({name for name in self.trace.requests(None).tenant or () if name})

    def tenant_names(self, streams: Streams, start: int, count: int) -> list[str] | None:
        """Return the tenants of drawn requests, or of drawn sessions, from *start* on; None without tenants."""
        return drawn_names(self.tenants, uniforms(streams, "tenant", start, count)) if self.tenants else None

    @property
    def uses_adapters(self) -> bool:
        """True if any request may use a LoRA adapter."""
        return self.adapters is not None or any(tenant.adapter is not None for tenant in self.tenants)

    @property
    def adapter_names(self) -> list[str]:
        """Names of the LoRA adapters that requests may use."""
        own = [tenant.adapter for tenant in self.tenants if tenant.adapter is not None]
        return [*(self.adapters.names if self.adapters is not None else ()), *own]

    def adapter_draws(self, streams: Streams, known: Iterable[str] = ()) -> AdapterDraws:
        """Return the draws of the requests' adapters; *known* are the adapters of all services on the same replicas."""
        return AdapterDraws(self.adapters, self.tenants, streams, known)

    def mean_rate_rps(self) -> float | None:
        """Return the long-run rate of offered requests [requests/s]; None for a closed loop or a burst.

        Raises TraceError.
        """
        if self.trace is not None:
            return self.trace.mean_rate_rps()
        return None if self.arrivals is None else self.arrivals.mean_rate_rps()

    def notes(self) -> tuple[str, ...]:
        """Return notes on the requests for readers of the results, a sentence each. Raises TraceError."""
        return () if self.trace is None else self.trace.reading().notes

    def describe(self) -> str:
        """Return a description of the workload, as one sentence. Raises TraceError."""
        if self.trace is not None:
            sentence = self.trace.describe() + ("; each request is one unit of work" if self.of_units else "")
        elif self.arrivals is None:
            raise AssertionError("a workload is drawn or recorded")
        elif self.lengths is None:
            sentence = Message("{describe}; each request is one unit of work", self.arrivals.describe())
        else:
            prompt, output = self.lengths.prompt.describe(), self.lengths.output.describe()
            alike = "; " + self.shared_prefix.describe() if self.shared_prefix else ""
            alike += "; " + self.sessions.describe() if self.sessions else ""
            alike += (
                Message("; the first {sent_before} prompts were sent before", self.sent_before)
                if self.sent_before
                else ""
            )
            sentence = Message(
                "{describe}; prompts: {prompt}; answers: {output}{alike}",
                self.arrivals.describe(),
                prompt,
                output,
                alike,
            )
        return capital(sentence) + "."


__all__ = [
    "HASH_BLOCK_TOKENS",
    "AzureTrace",
    "Burst",
    "BurstgptTrace",
    "ClosedLoop",
    "Constant",
    "CsvTrace",
    "Empirical",
    "Fixed",
    "Gamma",
    "Geometric",
    "Lengths",
    "Lognormal",
    "MooncakeTrace",
    "Poisson",
    "Profile",
    "Sessions",
    "SharedPrefix",
    "Streams",
    "TraceError",
    "Uniform",
    "Workload",
    "hourly_table",
    "length_table",
]


class MergedWorkload(Workload):
    """Workloads of all services of a fleet; each service draws its own requests."""

    parts: Mapping[str, Workload] = {}
    """Workload by service name."""

    @classmethod
    def of(cls, parts: Mapping[str, Workload]) -> "MergedWorkload":
        """Return the combination of *parts*, which have already been validated."""
        nothing = dict.fromkeys(("arrivals", "lengths", "sessions", "shared_prefix", "adapters", "trace"))
        return cls.model_construct(parts=dict(parts), tenants=(), sent_before=0, **nothing)

    @property
    def needs_horizon(self) -> bool:
        """True if only a horizon can end one of the workloads."""
        return any(one.needs_horizon for one in self.parts.values())

    @property
    def deterministic(self) -> bool:
        """True if nothing is drawn for any service."""
        return all(one.deterministic for one in self.parts.values())

    @property
    def stationary(self) -> bool:
        """True if the requests of all services keep arriving by the same law without end."""
        return all(one.stationary for one in self.parts.values())

    def verify(self) -> None:
        """Read the files that the workloads name. Raises TraceError listing all faults of a trace, UnknownId."""
        for one in self.parts.values():
            one.verify()

    def facts(self) -> list[tuple[str, Value]]:
        """Return the published statistics that the workloads use, with their places. Raises UnknownId."""
        return [(f"{name}.{place}", value) for name, one in self.parts.items() for place, value in one.facts()]

    def open_table(self, streams: Streams, horizon_s: float | None) -> RequestTable:
        """Raise ValueError, because each service has a request table of its own."""
        raise ValueError("services have tables of requests of their own")

    def mean_rate_rps(self) -> float | None:
        """Return the rate of all services together [requests/s]; None if a service has no rate. Raises TraceError."""
        rates = [one.mean_rate_rps() for one in self.parts.values()]
        return None if any(rate is None for rate in rates) else sum(rate or 0.0 for rate in rates)

    def notes(self) -> tuple[str, ...]:
        """Return notes on the requests of each service for readers of the results. Raises TraceError."""
        return tuple(placed(name, note) for name, one in self.parts.items() for note in one.notes())

    def describe(self) -> str:
        """Return a description of the workloads, a sentence per service. Raises TraceError."""
        return joined(" ", [placed(name, one.describe()) for name, one in self.parts.items()])
