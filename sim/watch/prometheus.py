"""Client of Prometheus' HTTP API: its clock, and range queries of the series that a watched fleet exports."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from io import BufferedReader, RawIOBase
from math import isfinite
from socket import socket
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit, urlunsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from sim.benchdata.served.scrapes import ENGINES, LATEST_S, Series, names_read, read_name
from sim.message import Message, os_reason
from sim.watch.source import COMPLETED, POWER, Points, SourceError, refuse_mixture

PREFIX = "(ray_)?"
MOST_BYTES = 512 * 2**20
"""Longest answer that is read [bytes]."""
CLOCK_S = 60.0
"""Least difference of the clocks that is reported [s]."""
MOST_SHOWN = 200
"""Longest text of the server that a message repeats [characters]."""


class PrometheusError(SourceError):
    """Error of a query; the message names the address, without a password."""

    code = 1


class _NoRedirect(HTTPRedirectHandler):
    """Handler that follows no redirect, which would send the token to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _BoundedReader(RawIOBase):
    """Reader of a socket until the time *end_s* of the monotonic clock."""

    def __init__(self, own: socket, raw: RawIOBase, end_s: float) -> None:
        super().__init__()
        self._own, self._raw, self._end_s = own, raw, end_s

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there. Raises TimeoutError when the time is over."""
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._own.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close the socket's reader."""
        self._raw.close()
        super().close()


class _BoundedResponse(HTTPResponse):
    """Response whose header and body together have the timeout of the connection, however slowly their parts come."""

    def __init__(self, own: socket, *more: Any, **how: Any) -> None:
        super().__init__(own, *more, **how)
        end_s = time.monotonic() + (own.gettimeout() or 0.0)
        self.fp = BufferedReader(_BoundedReader(own, self.fp.detach(), end_s))


def _bounded(kind: type[HTTPConnection]) -> type[HTTPConnection]:
    return type(kind.__name__, (kind,), {"response_class": _BoundedResponse})


class _Http(HTTPHandler):
    """Handler of http addresses with bounded responses."""

    def http_open(self, request: Request) -> HTTPResponse:
        """Send *request*."""
        return self.do_open(_bounded(HTTPConnection), request)


class _Https(HTTPSHandler):
    """Handler of https addresses with bounded responses."""

    def https_open(self, request: Request) -> HTTPResponse:
        """Send *request*."""
        return self.do_open(_bounded(HTTPSConnection), request)


OPENER = build_opener(_NoRedirect, _Http, _Https)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Prometheus server, or a program with its HTTP API such as Thanos, Mimir or VictoriaMetrics."""

    url: str
    """Address before `/api/v1`."""
    match: str = ""
    """Label matchers of all queries, such as `namespace="chat",model_name="m"`."""
    token: str = ""
    """Bearer token; empty: none is sent."""
    timeout_s: float = 30.0
    """Longest time to connect, and for an answer [s]."""

    @property
    def shown(self) -> str:
        """Address without user and password."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))

    def now_s(self) -> float:
        """Return the time of the server's clock [Unix s]. Raises PrometheusError."""
        answer = self._asked("query", {"query": "time()"})
        with suppress(KeyError, IndexError, TypeError, ValueError):
            if 0 < (now_s := float(answer["result"][1])) < LATEST_S:
                return now_s
        raise PrometheusError(Message("{url}: answers `time()` in a form that is not Prometheus'", self.shown))

    def engine_series(self, start_s: float, end_s: float, step_s: float, every: bool = True) -> dict[Series, Points]:
        """Return the series of vLLM or SGLang from *start_s* to *end_s*, sampled each *step_s*.

        Without *every*, the buckets of all histograms but TTFT are left out. Raises PrometheusError.
        """
        names = "|".join(
            f"{PREFIX}{engine}[:_]({'|'.join(sorted(names))})" for engine, names in names_read(every).items()
        )
        found: dict[Series, Points] = {}
        for labels, points in self._range(f'{{__name__=~"{names}"{self._also}}}', start_s, end_s, step_s):
            if name := read_name(labels.pop("__name__", "")):
                found[name, tuple(sorted(labels.items()))] = points
        return found

    def gpu_power(self, start_s: float, end_s: float, step_s: float) -> list[Points]:
        """Return the power of each GPU [W]; empty without DCGM's exporter. Raises PrometheusError."""
        return [points for _, points in self._range(f"{POWER}{{{self._also[1:]}}}", start_s, end_s, step_s)]

    def first_s(self, start_s: float, end_s: float) -> float | None:
        """Return the time of the first sample in a span, to an hour [Unix s]; None without one.

        Raises MixedSeries, or PrometheusError.
        """
        names = "|".join(f"{PREFIX}{engine}[:_]{COMPLETED}" for engine in ENGINES)
        query = f'count({{__name__=~"{names}"{self._also}}})by(__name__,model_name)'
        found = [*self._range(query, start_s, end_s, 3600.0)]
        refuse_mixture([(read_name(one.pop("__name__", "")) or "", tuple(one.items())) for one, _ in found], self.shown)
        return min((min(points) for _, points in found if points), default=None)

    def clock_notes(self, now_s: float, here_s: float) -> list[str]:
        """Return a note where the server's clock *now_s* differs from this machine's, *here_s* [Unix s]."""
        if abs(ahead := now_s - here_s) <= CLOCK_S:
            return []
        far = CLOCK_S * round(abs(ahead) / CLOCK_S)  # so that a restarted command says the same
        if ahead > 0:
            return [
                Message("the server's clock is {s:,.0f} s ahead of this machine's: hours are those of the server", far)
            ]
        return [Message("the server's clock is {s:,.0f} s behind this machine's: hours are those of the server", far)]

    @property
    def _also(self) -> str:
        return f",{self.match.strip().strip('{}')}" if self.match.strip().strip("{}") else ""

    def _range(
        self, query: str, start_s: float, end_s: float, step_s: float
    ) -> Iterator[tuple[dict[str, str], Points]]:
        asked = {"query": query, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        answer = self._asked("query_range", asked)
        try:
            for one in answer["result"]:
                values = {float(at_s): float(text) for at_s, text in one["values"]}
                yield dict(one["metric"]), {at_s: value for at_s, value in values.items() if isfinite(at_s + value)}
        except (KeyError, TypeError, ValueError):
            raise PrometheusError(
                Message("{url}: answers a range query in a form that is not Prometheus'", self.shown)
            ) from None

    def _asked(self, what: str, fields: Mapping[str, str]) -> Any:
        """Return `data` of the answer to a query. Raises PrometheusError."""
        request = Request(f"{self.shown}/api/v1/{quote(what)}", urlencode(fields).encode())
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        try:
            with OPENER.open(request, timeout=self.timeout_s) as response:
                body = self._body(response)
        except HTTPError as error:
            raise PrometheusError(
                Message("{url}: HTTP {code}: {reason}", self.shown, error.code, _reason(error))
            ) from None
        except TimeoutError:
            raise PrometheusError(self._slow()) from None
        except URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise PrometheusError(self._slow()) from None
            reason = os_reason(error.reason) if isinstance(error.reason, OSError) else str(error.reason)
            raise PrometheusError(Message("{url}: cannot be reached: {reason}", self.shown, reason)) from None
        except (HTTPException, OSError) as error:
            raise PrometheusError(
                Message("{url}: breaks the connection off: {reason}", self.shown, type(error).__name__)
            ) from None
        if len(body) > MOST_BYTES:
            raise PrometheusError(
                Message(
                    "{url}: sends more than {size} MB: choose fewer series with --match", self.shown, MOST_BYTES >> 20
                )
            )
        try:
            answer = json.loads(body)
            if answer["status"] != "success":
                raise PrometheusError(
                    Message("{url}: refuses the query: {reason}", self.shown, str(answer.get("error"))[:MOST_SHOWN])
                )
            return answer["data"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise PrometheusError(
                Message(
                    "{url}: is no Prometheus (its answer is not JSON of the API): give the address before /api/v1",
                    self.shown,
                )
            ) from None

    def _body(self, response: HTTPResponse) -> bytearray:
        body = bytearray()
        while len(body) <= MOST_BYTES and (part := response.read1(2**20)):
            body += part
        if len(body) <= MOST_BYTES and response.length:
            raise IncompleteRead(b"", response.length)
        return body

    def _slow(self) -> str:
        return Message("{url}: no answer within {timeout_s:g} s; --timeout allows more", self.shown, self.timeout_s)


def _reason(error: HTTPError) -> str:
    """Return the server's own words on an error, else the name of its code."""
    with suppress(Exception):
        return str(json.loads(error.read(MOST_BYTES))["error"])[:MOST_SHOWN]
    return str(error.reason)


def why_not_address(url: str) -> str:
    """Return the reason why *url* is no address of a Prometheus server; empty if it is one."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        return Message("is not an address such as http://localhost:9090, but {url!r}", url[:MOST_SHOWN])
    if "@" in parts.netloc:
        return "has a user or a password: put a bearer token into GPUFLEET_PROMETHEUS_TOKEN instead"
    return ""
