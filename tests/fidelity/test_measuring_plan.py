"""Commands of `calibrate --plan`: every kind of server once, and columns that calibrate then understands."""

import shlex
from pathlib import Path

import pytest

from sim.benchdata.served import parsed
from sim.benchdata.table import row_of
from sim.catalogue.catalog import load_catalog
from sim.fidelity.bench_scenario import case_of
from sim.fidelity.measuring_plan import measuring_plan
from sim.fidelity.prediction import campaigns_of
from sim.scenario.reading.load import load
from sim.scenario.reading.shipped import scenario_file

CATALOG = load_catalog()


def lines(name: str) -> list[str]:
    return measuring_plan(load(scenario_file(Path(name)), catalog=CATALOG), CATALOG)


def test_three_loads_a_long_prompt_and_the_link_of_each_server() -> None:
    found = lines("4x4090-vs-2xa100")
    first, second = found[: found.index("")], found[found.index("") + 1 :]
    assert first[1] == "all_reduce_perf -b 1K -e 256M -f 2 -g 4 > all-reduce-4.txt"
    assert [line.split("--max-concurrency ")[1].split()[0] for line in first[2:6]] == ["1", "8", "64", "1"]
    assert "--random-input-len 8192 --random-output-len 16 " in first[5]
    assert len(first) == len(second) == 7
    assert second[-1].endswith("--out my-a100-80gb-pcie.yaml")


@pytest.mark.parametrize("name", ["4x4090-vs-2xa100", "sxm-servers", "energy-mac-vs-4090"])
def test_calibrate_understands_what_the_plan_states_about_a_server(name: str) -> None:
    for line in lines(name):
        if not line.startswith("gpufleet calibrate"):
            continue
        words = shlex.split(line)
        stated = parsed([words[i + 1] for i, word in enumerate(words) if word == "--about"])
        gpu = words[words.index("--gpu") + 1]
        row = row_of({**stated, "gpu": gpu, "isl": "512", "osl": "64", "concurrency": "8"}, 0, Path(), [])
        assert row is not None
        names = case_of(row, CATALOG, campaigns_of(CATALOG)).names
        assert (names.gpu.id, names.model.id) == (gpu, stated["model"])
        assert names.engine.id.startswith(stated["engine"])
