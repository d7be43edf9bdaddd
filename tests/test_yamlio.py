"""The YAML dialect: numbers are numbers, text is text, every place has a line."""

import atexit
import math
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from characters import any_of
from hypothesis import given
from hypothesis import strategies as st

from sim import yamlio
from sim.yamlio import YamlError, dump, keep_documents, parse, read, read_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9), ("9.89e14", 9.89e14), ("989e12", 989e12), ("1E-3", 1e-3), ("-3", -3), ("+.5", 0.5), ("1.", 1.0),
        ("0x10", 16), ("007", 7), ("true", True), ("False", False), ("~", None), ("", None), ("null", None), (".inf",
        math.inf), ("-.INF", -math.inf), ("on", "on"), ("yes", "yes"), ("No", "No"), ("12:30:00", "12:30:00"),
        ("2024-05-01", "2024-05-01"), ("1_000", "1_000"), ("'5'", "5"), ("1e", "1e"), ("e9", "e9"), ("0o17", "0o17"),
        ("[1, {a: 2e0}]", [1, {"a": 2.0}]),
    ],
)  # fmt: skip
def test_scalars(text: str, value: Any) -> None:
    got = parse(text)
    assert got == value
    assert type(got) is type(value)


def test_nan_is_read_for_the_schema_to_refuse() -> None:
    assert math.isnan(parse(".nan"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3: the key 'a' is given twice"),
        ("a:\n  - {b: 1,\n     b: 1}", "f.yaml:3: the key 'b' is given twice"),
        ("a: [1", "f.yaml:2: is not valid YAML: did not find expected ',' or ']'"),
        ("a: &x [*x]", "f.yaml:1: an alias that contains itself"),
        ("? [1]\n: 2", "f.yaml:1: a key must be a plain word or number"),
        ("a: !!python/name:os.system x", "f.yaml:1: the tag tag:yaml.org,2002:python/name:os.system is not allowed"),
        ("\x01", "f.yaml: is not valid YAML: control characters are not allowed"),
        ("9" * 5000, f"f.yaml:1: '{'9' * 40}' is not a usable number"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        read_text(text, "f.yaml")
    assert str(caught.value) == message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(YamlError, match=r"gone\.yaml: cannot be read: no such file or directory"):
        read(tmp_path / "gone.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(YamlError, match=r"latin\.yaml: is not UTF-8 text"):
        read(tmp_path / "latin.yaml")


def test_every_place_has_a_line() -> None:
    document = read_text("a: 1\nb:\n  - c: 1\n    d: 2\n  - {c: 3}\n2: x\n", "f.yaml")
    assert [document.line(p) for p in [("a",), ("b",), ("b", 0, "d"), ("b", 1), ("b", 1, "c"), (2,)]] == [
        1,
        2,
        4,
        5,
        5,
        6,
    ]
    assert document.line(("b", 0, "nothing", "here")) == 3
    assert document.line(("b", 7)) == 2


def test_a_second_document_is_refused() -> None:
    with pytest.raises(YamlError, match=r"f\.yaml:2: begins another document"):
        read_text("a: 1\n---\nb: 2\n", "f.yaml")


def test_merge_keys_stand_for_the_keys_of_another_mapping() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {<<: *a, y: 3}\nc:\n  <<: [*b, *a]\n  z: 4\n"
    document = read_text(text, "f.yaml")
    assert document.data["c"] == {"z": 4, "y": 3, "x": 1}
    assert [document.line(("c", key)) for key in "xyz"] == [1, 2, 5]
    for bad, mistake in (("a: &a {<<: *a}", "contains itself"), ("a: {<<: 3}", "must name a mapping")):
        with pytest.raises(YamlError, match=mistake):
            read_text(bad, "f.yaml")


def test_kept_documents_are_those_that_would_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped, kept, at_exit = tmp_path / "data" / "a.yaml", tmp_path / "a.documents", list[Callable[[], None]]()
    shipped.parent.mkdir()
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    composed, loader = list[str](), yamlio._Loader

    def noted(text: str) -> Any:
        composed.append(text)
        return loader(text)

    monkeypatch.setattr(yamlio, "_Loader", noted)

    def start(text: str) -> tuple[Any, list[str]]:
        """Return the data of *text* in a command that starts, reads it and ends, and the texts that it has parsed."""
        shipped.write_text(text)
        composed.clear()
        monkeypatch.setattr(yamlio, "_kept", None)
        keep_documents(shipped.parent, kept)
        document = read(shipped)
        parsed = composed.copy()
        assert document.line(("b",)) == text.count("\n")
        document.data["a"].append("changed by its reader")
        at_exit.pop()()
        return {**document.data, "a": document.data["a"][:-1]}, parsed

    text, other = "a: [1, 0.5]\nb: true\n", "a: [1]\n\nb: 0\n"
    assert start(text) == ({"a": [1, 0.5], "b": True}, [text])
    assert start(text) == ({"a": [1, 0.5], "b": True}, [])
    assert start(other) == ({"a": [1], "b": 0}, [other])
    kept.write_bytes(kept.read_bytes()[:-1])  # damaged
    assert start(text)[1] == [text]
    monkeypatch.setattr(yaml, "__version__", "newer")
    assert start(text)[1] == [text]
    assert start(text)[1] == []


_RANGES = ((0x20, 0x7E), (0xA0, 0xD7FF), (0xF900, 0xFFDC), (0x10000, 0x10FFF), (0x20000, 0x2A6DF))
_characters = st.one_of(*(st.integers(*ends) for ends in _RANGES)).map(chr)
_texts = st.text(_characters.filter(lambda one: unicodedata.category(one).startswith(("L", "N", "P", "Zs"))))
_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _texts
_data = st.recursive(
    _scalars | st.sampled_from(["on", "1e9", "12:30:00", "null", "~", "=", "<<", "2024-01-01", "1_0"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(any_of("abn1: "), max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(_data)
def test_dump_is_read_back_unchanged(data: Any) -> None:
    assert parse(dump(data)) == data
