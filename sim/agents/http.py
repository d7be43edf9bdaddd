"""Streamable HTTP of the MCP server behind a token."""

import hmac
import secrets
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sim.message import Message as Text

PATH = "/mcp"
MOST_BYTES = 16 * 2**20
"""Largest request [bytes]: a sweep of a million points fits, so that the limit on simulations refuses it."""
INVALID_REQUEST = -32600
"""JSON-RPC's code of an invalid request."""


class TokenGuard:
    """Application that answers only requests with `Authorization: Bearer` and the token.

    A request that is refused for its token or its size gets a JSON-RPC error, whose message a client shows.
    """

    def __init__(self, app: ASGIApp, token: str, most_bytes: int) -> None:
        self._app, self._expected, self._most_bytes = app, f"Bearer {token}".encode(), most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("authorization", "").encode()
        if not hmac.compare_digest(given, self._expected):
            await _refusal(401, "the token is missing or wrong")(scope, receive, send)
            return
        too_large = False

        async def send_clearly(message: Message) -> None:
            nonlocal too_large
            if message["type"] == "http.response.start" and message["status"] == 413:
                too_large = True
                text = Text(
                    "the request has more than {most:,} bytes: fewer sweep points, or a scenario in a file",
                    self._most_bytes,
                )
                await _refusal(413, text)(scope, receive, send)
            if not too_large:
                await send(message)

        await self._app(scope, receive, send_clearly)


def _refusal(status: int, text: str) -> JSONResponse:
    error = {"code": INVALID_REQUEST, "message": text}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(32)


def guarded(server: MCPServer[Any], token: str, host: str, most_bytes: int = MOST_BYTES) -> ASGIApp:
    """Return the application of *server* at *host* behind *token*, for requests of at most *most_bytes* bytes."""
    app = server.streamable_http_app(streamable_http_path=PATH, host=host, max_request_body_size=most_bytes)
    return TokenGuard(app, token, most_bytes)


def serve_http(server: MCPServer[Any], token: str, host: str, port: int) -> None:
    """Serve until the process is interrupted."""
    uvicorn.run(guarded(server, token, host), host=host, port=port, log_level="warning")
