"""Streamable HTTP of the MCP server behind a token."""

import hmac
import secrets
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"


class TokenGuard:
    """Application that answers only requests with `Authorization: Bearer` and the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            given = Headers(scope=scope).get("authorization", "").encode()
            if not hmac.compare_digest(given, self._expected):
                await PlainTextResponse("the token is missing or wrong", 401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(32)


def guarded(server: MCPServer[Any], token: str, host: str) -> ASGIApp:
    """Return the application of *server* at *host* behind *token*."""
    return TokenGuard(server.streamable_http_app(streamable_http_path=PATH, host=host), token)


def serve_http(server: MCPServer[Any], token: str, host: str, port: int) -> None:
    """Serve until the process is interrupted."""
    uvicorn.run(guarded(server, token, host), host=host, port=port, log_level="warning")
