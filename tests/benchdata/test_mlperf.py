"""Tables of MLPerf results."""

from pathlib import Path

import pytest

from sim.benchdata import BenchdataError
from sim.benchdata.mlperf import read_mlperf

HEADER = "accelerator,n_accelerators,benchmark,scenario,samples_s,scheduled_samples_s,mean_latency_ms,system\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "mlperf.csv"
    path.write_text(HEADER + text)
    return path


def test_rows_are_numbered_and_server_rates_fall_back_to_the_schedule(tmp_path: Path) -> None:
    text = "NVIDIA L4,8,bert-99,Server,,900.5,12,L4x8_MaxQ\nNVIDIA L4,,bert-99,Offline,,7,1,L4\n"
    first, second = read_mlperf(written(tmp_path, text))
    assert (first.id, first.scenario, first.n_accelerators, first.power_limited) == ("1", "server", 8, True)
    assert first.measured == {"samples_s": 900.5, "mean_latency_ms": 12.0}
    assert (second.id, second.n_accelerators, second.power_limited) == ("2", 1, False)
    assert second.measured == {"mean_latency_ms": 1.0}


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, "NVIDIA L4,1.5,bert-99,Offline,fast,,1,\n,1,bert-99,Offline,1,,,\n")
    with pytest.raises(BenchdataError) as told:
        read_mlperf(path)
    assert str(told.value).splitlines() == [
        f"{path}:2: n_accelerators must be a whole number, not 1.5",
        f"{path}:2: samples_s must be a number, not 'fast'",
        f"{path}:3: accelerator is missing",
    ]
