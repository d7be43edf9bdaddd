"""Clients that send slowly, do not read, or ask for checks that take long: others do not wait for them."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import uvicorn
from small_scenario import SMALL

from sim.report.charts.vega_lite import bundle
from sim.serve import guard, http_server
from sim.serve.guard import Access
from sim.serve.http_server import application, listening
from sim.serve.refusals import RefusedRequest
from sim.serve.scenario_checks import CheckProcesses, CheckRequest
from sim.serve.workspace import Workspace

GUARD_S = 60.0
"""Longest time that a test waits for a state [s]."""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Access]:
    """Return the access to a server that waits for slow clients until a test lowers its limits."""
    for module, name in (
        (http_server, "LONGEST_HEADERS_S"),
        (http_server, "LONGEST_UNREAD_S"),
        (guard, "LONGEST_BODY_S"),
    ):
        monkeypatch.setattr(module, name, GUARD_S)
    monkeypatch.setattr(http_server, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(http_server, "MOST", 40)
    waiting = listening("127.0.0.1", 0)
    access = Access.of("127.0.0.1", waiting.getsockname()[1])
    config = uvicorn.Config(
        application(Workspace(tmp_path), access),
        log_level="error",
        ws="none",
        timeout_keep_alive=1,
        **http_server.OPTIONS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([waiting],))
    thread.start()
    yield access
    server.should_exit = True
    thread.join()
    waiting.close()


def client(access: Access, sent: bytes, buffer: int = 0) -> socket.socket:
    found = socket.socket()
    if buffer:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    found.connect(("127.0.0.1", access.port))
    found.settimeout(GUARD_S)
    found.sendall(sent)
    return found


def read_page(access: Access) -> None:
    """Read the page, in less than the time that the server waits for a slow client."""
    proof = {"Authorization": f"Bearer {access.token}"}
    with urlopen(Request(f"http://127.0.0.1:{access.port}/", headers=proof), timeout=GUARD_S / 2) as answer:
        assert answer.status == 200


@pytest.mark.slow
def test_slow_clients_are_cut_off_and_pages_do_not_wait(served: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    head = f"Host: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n".encode()
    slow_headers = [client(served, b"GET / HTTP/1.1\r\nHo") for _ in range(100)]
    slow_bodies = [
        client(served, b"POST /api/check HTTP/1.1\r\n" + head + b"Content-Length: 99\r\n\r\n{") for _ in range(20)
    ]
    read_page(served)
    monkeypatch.setattr(http_server, "LONGEST_HEADERS_S", 0.0)
    for one in slow_headers:
        with one:
            assert ended(one) == b""
    for one in slow_bodies:
        one.close()
    monkeypatch.setattr(http_server, "LONGEST_HEADERS_S", GUARD_S)
    # more answers than the system's buffers hold
    with client(served, (b"GET /vega.js HTTP/1.1\r\n" + head + b"\r\n") * 8, 1024) as unread:
        read_page(served)
        monkeypatch.setattr(http_server, "LONGEST_UNREAD_S", 0.0)
        assert len(ended(unread)) < 8 * len(bundle())


def ended(one: socket.socket) -> bytes:
    """All that the server still sends before it closes the connection."""
    found = b""
    try:
        while part := one.recv(4096):
            found += part
    except ConnectionResetError:
        pass
    return found


def test_a_body_that_does_not_arrive_is_refused(served: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LONGEST_BODY_S", 0.05)
    head = f"POST /api/check HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n"
    with client(served, f"{head}Content-Length: 99\r\n\r\n{{".encode()) as one:
        assert ended(one).startswith(b"HTTP/1.1 408")
    with client(served, f"{head}X: {'x' * 100_000}\r\n\r\n".encode()) as one:
        assert not ended(one).startswith(b"HTTP/1.1 2")


def test_a_check_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    wanted = CheckRequest(tmp_path, tmp_path / "small.yaml", SMALL, [])
    checks = CheckProcesses(0.0)
    with pytest.raises(RefusedRequest, match="was stopped"):
        checks.ask(wanted)
    checks.longest_s = 30
    assert (checks.ask(wanted).cases, checks.ask(wanted).errors) == (2, [])
