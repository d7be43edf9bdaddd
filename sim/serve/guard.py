"""Who may ask the server: its own pages on its own address, and nobody else.

A page of another site can send requests to this machine. It cannot name our host where its name was made to point here
(DNS rebinding), cannot leave out its Origin, and cannot read the token that every change needs.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sim.language import retold

CHANGE_HEADER = "x-csrf-token"
COOKIE = "gpufleet-token"
HEALTH = "/healthz"
READING = frozenset({"GET", "HEAD"})
MOST_BODY_BYTES = 2_000_000
"""Of a request: a scenario is text."""
LONGEST_ADDRESS = 16_000
"""Characters of path and query."""
MOST_AT_ONCE = 100
"""Requests that are being answered, pages that watch the queue among them; further ones are to come again."""
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
"""Of every answer that does not say otherwise."""


def _secret() -> str:
    return secrets.token_urlsafe(24)


@dataclass(frozen=True, slots=True)
class Access:
    """On what names the server answers, and what a caller has to know."""

    hosts: frozenset[str]
    """As browsers write them in the header Host: 127.0.0.1:8765."""
    port: int
    any_address: bool = False
    """Whether it answers on every IP address of the machine; a name is still refused, as anybody can make one."""
    token: str = ""
    """What reading needs beyond this machine; empty: nothing."""
    change_token: str = field(default_factory=_secret)
    """What every change needs."""

    @classmethod
    def of(cls, host: str, port: int) -> "Access":
        """Of a server that listens on *host*; beyond this machine every request needs a token."""
        names = ["127.0.0.1", "localhost", "[::1]"]
        if is_local(host):
            return cls(_with_port(names, port), port)
        every = host in ("0.0.0.0", "::")
        return cls(_with_port([*names, _bracketed(host)], port), port, every, _secret())

    def knows_host(self, host: str) -> bool:
        """Whether *host* is a name of this server."""
        return host.lower() in self.hosts or (self.any_address and self._is_address(host))

    def knows_origin(self, origin: str) -> bool:
        """Whether a page of *origin* is one of ours."""
        scheme, _, host = origin.partition("://")
        return scheme == "http" and self.knows_host(host)

    def _is_address(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            ip_address(parts.hostname or "")
        except ValueError:
            return False
        return (parts.port or 80) == self.port


def is_local(host: str) -> bool:
    """Whether nobody but this machine reaches *host*."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def _with_port(names: Iterable[str], port: int) -> frozenset[str]:
    bare = names if port == 80 else ()
    return frozenset([*bare, *(f"{name}:{port}" for name in names)])


class Guard:
    """Wraps the application: refuses what is not from its own pages, and says what browsers may do with its answers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return  # nothing here is a websocket

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._busy(scope) or self._refusal(scope) or self._welcome(scope) or self.app
        self._answering += 1
        try:
            await answer(scope, receive, with_headers)
        finally:
            self._answering -= 1

    def _busy(self, scope: Scope) -> Response | None:
        if self._answering < MOST_AT_ONCE or scope["path"] == HEALTH:
            return None
        text = "too many requests at once, and this one was not looked at; send it again in a second"
        return _refused(503, text, {"retry-after": "1"})

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts, origin = headers.getlist("host"), headers.get("origin")
        if len(hosts) != 1 or not self.access.knows_host(hosts[0]):
            return _refused(403, "this server does not answer under that name; open the address that it printed")
        if origin is not None and not self.access.knows_origin(origin):
            return _refused(403, "only the pages of this server may ask it")
        if len(scope["path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            return _refused(414, f"the address is longer than {LONGEST_ADDRESS} characters")
        if _length(headers) > MOST_BODY_BYTES:
            return _refused(413, f"at most {MOST_BODY_BYTES / 1e6:g} MB can be sent")
        if scope["path"] == HEALTH:
            return None
        if self.access.token and not self._may_read(scope, headers):
            return _refused(401, "the address needs its token: open the one that gpufleet serve printed")
        token = headers.get(CHANGE_HEADER, "")
        if scope["method"] not in READING and not _same(token, self.access.change_token):
            return _refused(403, "a change needs the page's token: reload the page")
        return None

    def _may_read(self, scope: Scope, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        known = [given] if kind.lower() == "bearer" else []
        known += parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            cookies = SimpleCookie()
        known += [cookies[COOKIE].value] if COOKIE in cookies else []
        return any(_same(one, self.access.token) for one in known)

    def _welcome(self, scope: Scope) -> Response | None:
        """Takes the token out of the page's address and keeps it in a cookie, so that it is not sent on with a link."""
        query = scope["query_string"].decode("latin-1")
        kept = [part for part in query.split("&") if part and not part.startswith("token=")]
        if not self.access.token or scope["path"] != "/" or len(kept) == len(query.split("&")):
            return None
        answer = RedirectResponse("/" + (f"?{'&'.join(kept)}" if kept else ""), 303)
        answer.set_cookie(COOKIE, self.access.token, httponly=True, samesite="strict")
        return answer


def _same(one: str, other: str) -> bool:
    return compare_digest(one.encode(), other.encode())


def _length(headers: Headers) -> int:
    told = headers.get("content-length", "0")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 16 else MOST_BODY_BYTES + 1


def _refused(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"gpufleet: {retold(text)}\n", status, headers)
