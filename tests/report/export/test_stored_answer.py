"""A finished run as frames."""

from pathlib import Path

import pytest
from small_scenario import REFEREE, variant
from typer.testing import CliRunner

from sim.cli import app
from sim.report.export.stored_answer import read_run


@pytest.mark.slow
@pytest.mark.parametrize("requests", ["csv", "parquet", "none"])
def test_frames_hold_the_run(tmp_path: Path, requests: str) -> None:
    steady = {"workload.arrivals": {"process": "constant", "rate_rps": 2}, "horizon_s": 10, "requests": requests}
    (tmp_path / "tiny.yaml").write_text(variant(REFEREE, steady))
    out = tmp_path / "out"
    arguments = ["run", str(tmp_path / "tiny.yaml"), "--out", str(out), "--no-report", "--quiet"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    frames = read_run(out)
    assert frames.summary["completed"].tolist() == [20]
    assert frames.usage["output_tokens"].sum() == 200
    if frames.requests is None:
        assert requests == "none"
    else:
        assert (frames.requests["finished_s"] > frames.requests["arrived_s"]).all()


def test_no_run_no_frames(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_run(tmp_path)
