"""The header of a table says what kind of measurements it holds."""

from pathlib import Path

import pytest

from sim.fidelity.validation import KINDS, SERVING, table_kind


@pytest.mark.parametrize("text", ["gpu,model,output_tok_s\n", "", "\xff"])
def test_what_no_other_kind_knows_is_a_table_of_serving_engines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="latin-1")
    assert table_kind(path) is SERVING
    assert table_kind(tmp_path) is SERVING


def test_every_kind_can_be_reached() -> None:
    for place, kind in enumerate(KINDS):
        assert not any(earlier.columns <= kind.columns for earlier in KINDS[:place])
