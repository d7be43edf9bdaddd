"""Page and metrics of a watch: what is stored at once after a restart, and nothing else before the first round."""

from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import typer

from sim.cli.watch import _rounds, _serve_stored
from sim.watch.http import published
from sim.watch.otlp import OtlpError
from sim.watch.source import SourceError


def fetched(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, ""


def test_a_restarted_watch_serves_what_is_stored(tmp_path: Path) -> None:
    (tmp_path / "watch.html").write_text("<p>stored")
    with published("127.0.0.1", 0) as (port, texts):
        url = f"http://127.0.0.1:{port}"
        assert fetched(f"{url}/")[0] == 503
        _serve_stored(tmp_path, texts)
        assert fetched(f"{url}/") == (200, "<p>stored")
        assert [fetched(f"{url}{path}")[0] for path in ("/metrics", "/answer.json", "/other")] == [503, 503, 404]


@pytest.mark.parametrize(("end", "lines"), [(0, ["m.json:7: is not JSON"]), (7200, ["m.json:7: is not JSON", "gone"])])
def test_once_reads_on_after_new_broken_lines_where_hours_are_stored(
    capsys: pytest.CaptureFixture[str], end: int, lines: list[str]
) -> None:
    errors = iter([OtlpError("m.json:7: is not JSON"), SourceError("gone")])

    def read() -> int:
        raise next(errors)

    with pytest.raises(typer.Exit):
        _rounds(SimpleNamespace(read=read, storage=SimpleNamespace(end=end)), None, True, "json", True)
    assert capsys.readouterr().err.splitlines() == lines
