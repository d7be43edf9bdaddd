"""The header of a table says what kind of measurements it holds."""

from pathlib import Path

import pytest

from sim.fidelity.validation import KINDS, SERVING, remarks, table_kind


@pytest.mark.parametrize("text", ["gpu,model,output_tok_s\n", "", "\xff"])
def test_what_no_other_kind_knows_is_a_table_of_serving_engines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="latin-1")
    assert table_kind(path) is SERVING
    assert table_kind(tmp_path) is SERVING


def test_every_kind_can_be_reached() -> None:
    for place, kind in enumerate(KINDS):
        assert not any(earlier.columns <= kind.columns for earlier in KINDS[:place])


def test_remarks_state_the_columns_that_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("GPU,model,median_ttft_ms,Replicas,num_requests,\n")
    compared, others = remarks(SERVING, path)
    assert compared.startswith("not compared: median_ttft_ms; measured values are ")
    assert others == "not read: replicas"
    path.write_text("gpu,model,ttft_p50_ms\n")
    assert remarks(SERVING, path) == []
