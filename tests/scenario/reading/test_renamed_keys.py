"""Keys of earlier versions are read under their present names, with a line that tells so; both together are refused."""

import logging
from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog
from sim.cost.operations import Operations
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data, at_point, points
from sim.yamlio import dump

SCENARIO = """\
# What does it cost?
workload:
  arrivals: {process: poisson, rate_rps: 4}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 20}}
horizon_s: 8
fleets:
  - name: own
    pools:
      - gpu: rtx-4090
        server: workstation-1x4090
        steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 2, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
    cost: {acquisition: buy}
    operations:
      tax: {fraction_of_purchases: 0.1}
site: {electricity_usd_per_kwh: 0.2, pue: 1.2}
finance: {method: straight_line, life_years: 1, inflation: {rental_unused: 0.02}}
"""


def loaded(folder: Path, text: str = SCENARIO, *sets: str) -> Scenario:
    (folder / "s.yaml").write_text(text)
    return load(folder / "s.yaml", sets, catalog=load_catalog())


def rate(operations: Operations | None) -> float:
    assert operations is not None
    assert operations.sales_tax is not None
    return operations.sales_tax.fraction_of_purchases


def test_old_key_names_are_read_and_reported_with_their_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gpufleet"):
        scenario = loaded(tmp_path)
    assert rate(scenario.fleets[0].operations) == 0.1
    assert scenario.finance is not None
    assert scenario.finance.inflation == {"unused commitment": 0.02}
    told = [record.getMessage().removeprefix(f"{tmp_path / 's.yaml'}:") for record in caplog.records]
    read = "the earlier name is read as well"
    assert told == [
        f"15: fleets.0.operations.tax: is called sales_tax now; {read}",
        f"17: finance.inflation.rental_unused: is called unused commitment now; {read}",
    ]
    caplog.clear()
    assert loaded(tmp_path, SCENARIO + "requests_cost: true\n").cost_per_request
    assert [one.getMessage().rpartition(":18: ")[2] for one in caplog.records][-1] == (
        f"requests_cost: is called cost_per_request now; {read}"
    )
    caplog.clear()
    again = loaded(tmp_path, dump(as_data(scenario)))
    assert again.fleets[0].operations == scenario.fleets[0].operations
    assert not caplog.records


@pytest.mark.parametrize("name", ["tax", "sales_tax"])
def test_options_and_sweeps_reach_a_key_under_both_names(tmp_path: Path, name: str) -> None:
    path = f"fleets.own.operations.{name}.fraction_of_purchases"
    assert rate(loaded(tmp_path, SCENARIO, f"{path}=0.3").fleets[0].operations) == 0.3
    whole = loaded(tmp_path, SCENARIO, f"operations={{{name}: {{fraction_of_purchases: 0.4}}}}")
    assert rate(whole.operations) == 0.4
    swept = loaded(tmp_path, f"{SCENARIO}sweep: {{{path}: [0.1, 0.2]}}\n")
    assert [rate(at_point(swept, one).fleets[0].operations) for one in points(swept.sweep)] == [0.1, 0.2]
    values = f"[{{{name}: {{fraction_of_purchases: 0.1}}}}, {{{name}: {{fraction_of_purchases: 0.2}}}}]"
    swept = loaded(tmp_path, f"{SCENARIO}sweep: {{fleets.own.operations: {values}}}\n")
    assert [rate(at_point(swept, one).fleets[0].operations) for one in points(swept.sweep)] == [0.1, 0.2]


def test_a_base_and_its_heir_may_use_either_name(tmp_path: Path) -> None:
    stated = "    operations:\n      tax: {fraction_of_purchases: 0.1}\n"
    base = SCENARIO.replace(stated, "") + "operations: {tax: {fraction_of_purchases: 0.1}}\n"
    (tmp_path / "base.yaml").write_text(base)
    heir = "base: base.yaml\noperations: {sales_tax: {fraction_of_purchases: 0.2}}\n"
    assert rate(loaded(tmp_path, heir).operations) == 0.2


def test_both_names_together_are_refused_at_the_line(tmp_path: Path) -> None:
    both = SCENARIO.replace("tax: {frac", "sales_tax: {fraction_of_purchases: 0.2}\n      tax: {frac")
    with pytest.raises(ScenarioErrors) as error:
        loaded(tmp_path, both)
    [told] = error.value.errors
    assert (told.line, told.where) == (16, "fleets.0.operations.tax")
    assert told.message == "is an earlier name of sales_tax: remove one of them"


def test_mistakes_below_an_earlier_name_keep_their_lines(tmp_path: Path) -> None:
    with pytest.raises(ScenarioErrors) as error:
        loaded(tmp_path, SCENARIO.replace("fraction_of_purchases: 0.1", "fraction_of_purchases: 2"))
    [told] = error.value.errors
    assert (told.line, told.where) == (15, "fleets.0.operations.sales_tax.fraction_of_purchases")
