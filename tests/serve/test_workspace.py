"""Paths never lead out of the workspace."""

from pathlib import Path

import pytest

from sim.serve.refusals import RefusedRequest
from sim.serve.workspace import Workspace


@pytest.mark.parametrize(
    "name",
    [
        *("", "/etc/passwd", "..", "../x", "a/../../x", "./x", "a//b", "a/", ".git/config", "a/.ssh", "a\\b", "a\0b"),
        *("a\nb", "x" * 500, "/".join(["deep"] * 200), "%2e%2e/../x", "~/../x"),
    ],
)
def test_odd_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RefusedRequest):
        Workspace(tmp_path).path(name)


def test_a_name_that_is_too_long_for_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="too long"):
        Workspace(tmp_path).path("n" * 300)


def test_links_are_followed_nowhere(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "back").symlink_to(tmp_path / "inside")
    (tmp_path / "inside" / "file").symlink_to("/etc/hostname")
    workspace = Workspace(tmp_path)
    for name in ("out", "out/hostname", "back", "back/new.yaml", "inside/file"):
        with pytest.raises(RefusedRequest, match="not followed"):
            workspace.path(name)
    with pytest.raises(RefusedRequest, match="holds a link"):
        workspace.folder("inside")


def test_names_in_any_script_are_names(tmp_path: Path) -> None:
    name = "évaluation 日本 <b>.yaml"
    assert Workspace(tmp_path).path(name) == tmp_path.resolve() / name


def test_missing_files_are_reported(tmp_path: Path) -> None:
    for asked in (Workspace(tmp_path).folder, Workspace(tmp_path).file):
        with pytest.raises(RefusedRequest, match="reload the page") as found:
            asked("outputs/gone")
        assert found.value.status == 404
