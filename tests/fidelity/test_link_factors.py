"""Factors of a link from all-reduces: the factors with which times were made come back."""

import pytest

from sim.benchdata.nccl_tests import AllReduceRun
from sim.catalogue.catalog import load_catalog
from sim.fidelity.fit import calibration_of
from sim.fidelity.link_factors import link_factors
from sim.steptime.calibration import Factor
from sim.steptime.collective import AllReduce

CATALOG = load_catalog()
SIZES = tuple(1024.0 * 4**i for i in range(10))


@pytest.mark.parametrize("gpus", [(2,), (2, 4, 8)])
@pytest.mark.parametrize("name", ["pcie5-x16", "pcie4-x16-no-p2p", "nvlink4-nvswitch", "pcie3-x16"])
def test_the_factors_of_a_link_come_back(name: str, gpus: tuple[int, ...]) -> None:
    link = CATALOG.link(name)
    latency, per_byte = f"links.{name}.latency", f"links.{name}.time_per_byte"
    factors = {latency: Factor(factor=3.0), per_byte: Factor(factor=0.7)}
    slower = calibration_of("l40s", factors).link(link)
    slower = slower.model_copy(update={"allreduce_tables": slower.nccl_tables or slower.allreduce_tables})
    runs = []
    for count in gpus:
        curve = AllReduce.over(slower, count, 1.0)
        runs.append(AllReduceRun(count, SIZES, tuple(map(curve.time_s, SIZES))))
    found = link_factors(runs, link)
    assert found[latency] == pytest.approx(1.0986, abs=0.05)
    assert found[per_byte] == pytest.approx(-0.3567, abs=0.05)
