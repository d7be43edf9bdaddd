"""Factors of a link from all-reduces: the factors with which times were made come back."""

from dataclasses import replace
from pathlib import Path

import pytest
import typer

from sim.benchdata.nccl_tests import AllReduceRun, read_all_reduce
from sim.catalogue.catalog import load_catalog
from sim.catalogue.data_folder import UnknownId
from sim.cli.fidelity import _interconnect
from sim.fidelity.calibration import NothingToFit, calibrate_link, calibration_report, calibration_text
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


def test_a_host_becomes_right_by_its_table_of_all_reduces_alone() -> None:
    link, ranks = CATALOG.link("pcie5-x16-no-p2p"), "#  Rank  0 Group\n#  Rank  1 Group\n"
    slow = {f"links.{link.id}.{name}": Factor(factor=3.0) for name in ("latency", "time_per_byte")}
    host = AllReduce.over(calibration_of("rtx-pro-6000", slow).link(link), 2, 1.0)
    rate = {size: f"{size / host.time_s(size) / 1e9:.2f}" for size in SIZES}
    lines = [f"{size:.0f} 1 float sum -1 {1e6 * host.time_s(size):.2f} {rate[size]} {rate[size]} 0" for size in SIZES]
    measured = read_all_reduce(Path("all-reduce-2.txt"), ranks + "\n".join(lines))
    fitted = calibrate_link([measured], "rtx-pro-6000", link.id, CATALOG, "all-reduce-2.txt")
    calibrated = AllReduce.over(fitted.calibration.link(link), 2, 1.0)
    usual = AllReduce.over(link, 2, 1.0)
    for size in SIZES:
        assert calibrated.time_s(size) == pytest.approx(host.time_s(size), rel=0.01)
        assert calibrated.time_s(size) == pytest.approx(3 * usual.time_s(size), rel=0.01)
    assert "to all-reduces in all-reduce-2.txt" in calibration_text(fitted.calibration)
    assert len(calibration_report(fitted)) == 1
    with pytest.raises(typer.Exit):
        _interconnect({"interconnect": link.id, "tp": "2"}, [])
    with pytest.raises(NothingToFit, match="all-reduces between servers: name their link"):
        calibrate_link([replace(measured, hosts=2)], "rtx-pro-6000", "", CATALOG)
    with pytest.raises(UnknownId, match="did you mean pcie5-x16-no-p2p"):
        calibrate_link([measured], "rtx-pro-6000", "pcie5-x16-nop2p", CATALOG)
