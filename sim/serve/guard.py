"""Access control of the server: it answers only on its own address and only callers with its token.

Other users of the machine reach the address but do not have the token. A page of another site can send requests, even
with the cookie, but is refused by one of three checks: the Host header is not a name of this server (also where another
name was made to point here, DNS rebinding), the Origin header is not this server's, or a change lacks the change token,
which only this server's own pages contain.
"""

import asyncio
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from sim.language import translate_message
from sim.message import Message

CHANGE_HEADER = "x-csrf-token"
HEALTH = "/healthz"
READ_METHODS = frozenset({"GET", "HEAD"})
MOST_BODY_BYTES = 2_000_000
"""Largest body of a request [bytes]; a scenario is text."""
LONGEST_ADDRESS = 16_000
"""Largest length of path and query [characters]."""
LONGEST_BODY_S = 10
"""Time in which the body of a request has to arrive [s]."""
MOST_AT_ONCE = 100
"""Largest number of requests being answered, including pages that watch the queue; further ones get 503."""
MOST_SENDING = 100
"""Largest number of requests whose bodies are still arriving."""
MOST_FIELDS = 200
"""Largest number of fields in the query of an address."""
BUSY = "too many requests at once; this request was not read: send it again in a second"
TOO_LARGE = Message("at most {limit:g} MB can be sent", MOST_BODY_BYTES / 1e6)
NO_TOKEN = (
    "this address needs its token: open the whole address that gpufleet serve printed, with ?token=...; programs send "
    "the token as Authorization: Bearer; gpufleet serve --no-token asks for none"
)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every answer, unless the answer sets its own value."""


@dataclass(frozen=True, slots=True)
class Access:
    """Host names that the server answers on, and the token that callers need."""

    hosts: frozenset[str]
    """Host names as browsers write them in the header Host: 127.0.0.1:8765."""
    port: int
    any_address: bool = False
    """True if the server answers on every IP address of the machine; other host names are refused all the same."""
    is_open: bool = False
    """True if reading needs no token (`--no-token`); a change needs it all the same."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """Token of every caller: in the address, in a cookie, or as `Authorization: Bearer`."""

    @classmethod
    def of(cls, host: str, port: int, is_open: bool = False) -> "Access":
        """Return the access rules of a server that listens on *host* and *port*."""
        names = ["127.0.0.1", "localhost", "[::1]"]
        if is_local(host):
            return cls(_with_port(names, port), port, is_open=is_open)
        every = host in ("0.0.0.0", "::")
        return cls(_with_port([*names, _host_in_url(host)], port), port, every, is_open)

    @property
    def cookie(self) -> str:
        """Name of the cookie that holds the token: cookies of a host are sent to all its ports."""
        return f"gpufleet-token-{self.port}"

    @property
    def change_token(self) -> str:
        """Token that every change needs, contained in pages; the access token cannot be computed from it."""
        return hmac.new(self.token.encode(), b"change", "sha256").hexdigest()

    def knows_host(self, host: str) -> bool:
        """Return whether *host* is a name of this server."""
        return host.lower() in self.hosts or (self.any_address and self._is_address(host))

    def knows_origin(self, origin: str) -> bool:
        """Return whether *origin* is that of this server's own pages."""
        scheme, _, host = origin.partition("://")
        return scheme == "http" and self.knows_host(host)

    def _is_address(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            ip_address(parts.hostname or "")
            return (parts.port or 80) == self.port
        except ValueError:
            return False


def is_local(host: str) -> bool:
    """Return whether *host* is reached from this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _host_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def _with_port(names: Iterable[str], port: int) -> frozenset[str]:
    bare = names if port == 80 else ()
    return frozenset([*bare, *(f"{name}:{port}" for name in names)])


class Guard:
    """Middleware for access control, limits on requests, and security headers.

    It refuses callers without the token and pages of other origins, bounds the size, time and number of requests, and
    states what browsers may do with the answers.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access
        self._answering = self._sending = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return  # the server has no websockets

        async def with_headers(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if self._gives_token(scope) and message["status"] < 400:
                    headers.append("set-cookie", self._cookie())
            await send(message)

        answer: ASGIApp | None = self._refusal(scope)
        if answer is None and scope["method"] not in READ_METHODS:
            answer, receive = await self._received(receive)
        answer = answer or self._busy(scope)
        if answer is not None:
            await answer(scope, receive, with_headers)
            return
        self._answering += 1
        try:
            await self.app(scope, receive, with_headers)
        finally:
            self._answering -= 1

    def _busy(self, scope: Scope) -> Response | None:
        if self._answering < MOST_AT_ONCE or scope["path"] == HEALTH:
            return None
        return _closing_answer(503, BUSY, {"retry-after": "1"})

    async def _received(self, receive: Receive) -> tuple[Response | None, Receive]:
        """Receive the whole body, before the request counts among those being answered.

        Return a refusal or None, and a function that receives the body again.
        """
        if self._sending >= MOST_SENDING:
            return _closing_answer(503, BUSY, {"retry-after": "1"}), receive
        body, more = bytearray(), True
        self._sending += 1
        try:
            async with asyncio.timeout(LONGEST_BODY_S):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        break
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > MOST_BODY_BYTES:
                        return _closing_answer(413, TOO_LARGE), receive
        except TimeoutError:
            return _closing_answer(
                408, Message("the body of the request took longer than {limit} s", LONGEST_BODY_S)
            ), receive
        finally:
            self._sending -= 1
        waiting: list[AsgiMessage] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def again() -> AsgiMessage:
            return waiting.pop() if waiting else await receive()

        return None, again

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts, origin = headers.getlist("host"), headers.get("origin")
        if len(hosts) != 1 or not self.access.knows_host(hosts[0]):
            return _closing_answer(403, "this server does not answer under that name; open the address that it printed")
        if origin is not None and not self.access.knows_origin(origin):
            return _closing_answer(403, "only pages of this server may send it requests")
        if len(scope["path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            return _closing_answer(414, Message("the address is longer than {limit} characters", LONGEST_ADDRESS))
        if _length(headers) > MOST_BODY_BYTES:
            return _closing_answer(413, TOO_LARGE)
        if scope["path"] == HEALTH:
            return None
        tokens = [_bearer(headers), *_in_address(scope)]
        knows = any(_equal_in_constant_time(one, self.access.token) for one in tokens)
        if not (
            self.access.is_open
            or knows
            or _equal_in_constant_time(_of_cookie(headers, self.access.cookie), self.access.token)
        ):
            return _closing_answer(401, NO_TOKEN, {"www-authenticate": "Bearer"})
        if scope["method"] in READ_METHODS or knows:
            return None
        if not _equal_in_constant_time(
            headers.get(CHANGE_HEADER, ""), self.access.change_token
        ):  # browsers attach cookies to requests of other sites
            return _closing_answer(403, "a change needs the page's token: reload the page")
        return None

    def _gives_token(self, scope: Scope) -> bool:
        return scope["method"] in READ_METHODS and any(
            _equal_in_constant_time(one, self.access.token) for one in _in_address(scope)
        )

    def _cookie(self) -> str:
        return f"{self.access.cookie}={self.access.token}; Path=/; HttpOnly; SameSite=Strict"


def _bearer(headers: Headers) -> str:
    kind, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if kind.lower() == "bearer" else ""


def _in_address(scope: Scope) -> list[str]:
    """Values of `token` in the query of an address."""
    try:
        return parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=MOST_FIELDS).get("token", [])
    except ValueError:
        return []


def _of_cookie(headers: Headers, name: str) -> str:
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""


def _equal_in_constant_time(one: str, other: str) -> bool:
    """Compare two texts in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def _length(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 16 else MOST_BODY_BYTES + 1


def _closing_answer(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """Return an answer that ends the connection: the rest of the request is not read."""
    return PlainTextResponse(
        f"gpufleet: {translate_message(text)}\n", status, {"connection": "close", **(headers or {})}
    )
