"""Methods of dataclasses that the command keeps between starts."""

import atexit
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.cli.kept_methods import keep_generated_methods


def make() -> type:
    return dataclasses.make_dataclass("Made", [("gpus", int), ("name", str, "a100")], frozen=True)


@pytest.mark.parametrize("content", [None, b"", b"no marshal", b"i\x01\x00\x00\x00"])
def test_generated_methods_are_kept_for_the_next_start(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, at_exit = tmp_path / "some.methods", list[Callable[[], None]]()
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(dataclasses, "exec", None, raising=False)
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    keep_generated_methods(file)
    fresh = make()
    at_exit.pop()()
    written = file.read_bytes()
    for damaged in (written[:-1], written[:-9] + b"?" + written[-8:], b"?" + written[1:], written + b"?"):
        file.write_bytes(damaged)
        keep_generated_methods(file)
        assert repr(make()(2)) == "Made(gpus=2, name='a100')"
        at_exit.pop()()
        assert file.read_bytes() == written
    keep_generated_methods(file)
    kept = make()
    at_exit.pop()()
    assert file.read_bytes() == written
    assert list(tmp_path.iterdir()) == [file]
    for made in (fresh, kept):
        assert repr(made(2)) == "Made(gpus=2, name='a100')"
        assert made(2) == made(2, "a100") != made(3)
        with pytest.raises(dataclasses.FrozenInstanceError):
            made(2).gpus = 3


def test_folders_without_write_access_and_starts_without_bytecode_keep_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit = list[Callable[[], None]]()
    monkeypatch.setattr(dataclasses, "exec", None, raising=False)
    monkeypatch.setattr(atexit, "register", at_exit.append)
    for bytecode, file in ((False, tmp_path / "absent" / "some.methods"), (True, tmp_path / "some.methods")):
        monkeypatch.setattr(sys, "dont_write_bytecode", bytecode)
        keep_generated_methods(file)
        make()
        at_exit.pop()()
        assert not file.exists()
