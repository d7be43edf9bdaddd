"""Compiled templates that are kept between starts."""

import sys
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from sim.report.page.kept_templates import KeptTemplates


def rendered(source: str, folder: Path, autoescape: bool = True) -> str:
    environment = Environment(loader=DictLoader({"page": source}), autoescape=autoescape)
    vars(environment)["bytecode_cache"] = KeptTemplates(folder)
    return environment.get_template("page").render(gpus=2)


def test_kept_templates_give_the_same_text_until_their_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered("{{ gpus }} GPUs", tmp_path) == "2 GPUs"
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert rendered("{{ gpus }} GPUs", tmp_path) == "2 GPUs"
    (file,) = tmp_path.iterdir()
    kept = file.read_bytes()
    for damaged in (b"", b"damaged", kept[:20], kept[:-20], kept[:-20] + b"g" + kept[-19:], kept):
        file.write_bytes(damaged)
        assert rendered("{{ gpus }} GPUs", tmp_path) == "2 GPUs"
        assert list(tmp_path.iterdir()) == [file]
        assert file.read_bytes() == kept
    assert rendered("{{ gpus }} cards", tmp_path) == "2 cards"
    assert file.read_bytes() != kept
    assert rendered("{{ gpus }} cards", tmp_path / "absent") == "2 cards"
    assert [rendered("{{ '<' ~ gpus }}", tmp_path, escaped) for escaped in (True, False)] == ["&lt;2", "<2"]
