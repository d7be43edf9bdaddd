"""The command: what it shows, what it prints, and how it ends."""

import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from subprocess import CompletedProcess
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import typer

from sim.serve.http_server import CannotServe, opened

Command = Callable[..., CompletedProcess[str]]


def test_what_is_named_is_shown(folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "mine.yaml").write_text("name: mine\n")
    assert opened(Path("outputs/demo"), None)[1] == {"run": "outputs/demo"}
    assert opened(Path("mine.yaml"), None)[1] == {"scenario": "mine.yaml"}
    assert opened(Path("4x4090-vs-2xa100"), None)[1] == {"template": "4x4090-vs-2xa100"}
    assert opened(None, None)[1] == {}
    monkeypatch.chdir(root)
    found, shown = opened(folder / "outputs" / "demo", None)
    assert (found.root, shown) == ((folder / "outputs").resolve(), {"run": "demo"})
    with pytest.raises(CannotServe, match="outside the workspace"):
        opened(folder / "mine.yaml", folder / "outputs")
    with pytest.raises(CannotServe, match="is not the folder of a gpufleet run"):
        opened(folder / "outputs", None)


@pytest.mark.slow
def test_mistakes_end_it_with_one_line(gpufleet: Command, folder: Path) -> None:
    assert gpufleet("serve", "nowhere.yaml").stderr == "nowhere.yaml: there is no such scenario or run\n"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        answer = gpufleet("serve", "--port", str(taken.getsockname()[1]), "--no-open")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "already in use; --port names another" in answer.stderr


@pytest.mark.slow
def test_it_prints_its_address_and_answers_there(gpufleet: Command, folder: Path) -> None:
    """The server runs in the main thread, as SIGINT ends that; another thread asks."""
    printed: Queue[str] = Queue()

    def asked() -> list[int]:
        address = printed.get(timeout=30)
        try:
            start, _, token = address.partition("?token=")
            assert start.startswith("http://127.0.0.1:")
            assert token
            for page in (address, f"{start}healthz"):
                with urlopen(page, timeout=30) as answer:
                    assert answer.status == 200
            with pytest.raises(HTTPError) as refused:
                urlopen(start, timeout=30)
            refused.value.close()
            return [refused.value.code]
        finally:
            signal.raise_signal(signal.SIGINT)

    with ThreadPoolExecutor(1) as other, pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer, "echo", printed.put)
        answers = other.submit(asked)
        ended = gpufleet("serve", "--port", "0", "--no-open", "--workspace", folder)
        assert answers.result() == [401]
    assert ended.returncode == 0
