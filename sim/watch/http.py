"""HTTP server of a watched fleet: its page, its answer as JSON, and /metrics for Prometheus. It serves GET alone."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

WAITING = "The first round has not ended yet.\n"
PATHS = ("/", "/answer.json", "/metrics")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HTML_TYPE = "text/html; charset=utf-8"
JSON_TYPE = "application/json"
Published = dict[str, tuple[str, str]]
"""Path -> (content type, text)."""


@contextmanager
def published(host: str, port: int) -> Iterator[tuple[int, Published]]:
    """Serve texts by HTTP in a thread, and yield the port and the texts, which the caller replaces.

    Raises OSError where the address cannot be used.
    """
    texts: Published = {}

    class Handler(BaseHTTPRequestHandler):
        """Handler of GET requests for the published texts."""

        server_version, sys_version = "gpufleet", ""
        timeout = 30

        def do_GET(self) -> None:
            """Answer with the text of the path."""
            path = urlsplit(self.path).path
            if path == "/healthz":
                self._send(200, "text/plain", "ok\n")
            elif path in texts:
                self._send(200, *texts[path])
            elif path in PATHS:
                self._send(503, "text/plain", WAITING)
            else:
                self._send(404, "text/plain", "not found\n")

        def _send(self, code: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            headers: Mapping[str, str] = {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
            }
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: stdout has the answers."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], texts
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
