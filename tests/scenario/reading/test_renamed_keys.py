"""Keys of earlier versions are read under their present names, with a line that tells so; both together are refused."""

from pathlib import Path
from unittest import TestCase

import pytest

from sim.catalogue.catalog import load_catalog
from sim.cost.operations import Operations
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.layers import old_keys, value_at
from sim.scenario.reading.load import load
from sim.scenario.reading.migration import Migration, migrate
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data, at_point, points
from sim.yamlio import dump, read, read_text

ROOT = Path(__file__).resolve().parents[3]

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


def test_old_key_names_are_read_and_reported_with_their_lines(tmp_path: Path) -> None:
    with TestCase().assertLogs("gpufleet", "WARNING") as logged:
        scenario = loaded(tmp_path)
    assert rate(scenario.fleets[0].operations) == 0.1
    assert scenario.finance is not None
    assert scenario.finance.inflation == {"unused commitment": 0.02}
    told = [record.getMessage().removeprefix(f"{tmp_path / 's.yaml'}:") for record in logged.records]
    read = "the earlier name is read as well"
    assert told == [
        f"15: fleets.0.operations.tax: is called sales_tax now; {read}",
        f"17: finance.inflation.rental_unused: is called unused commitment now; {read}",
    ]
    with TestCase().assertLogs("gpufleet", "WARNING") as logged:
        assert loaded(tmp_path, SCENARIO + "requests_cost: true\n").cost_per_request
    assert logged.records[-1].getMessage().rpartition(":18: ")[2] == (
        f"requests_cost: is called cost_per_request now; {read}"
    )
    with TestCase().assertNoLogs("gpufleet", "WARNING"):
        again = loaded(tmp_path, dump(as_data(scenario)))
    assert again.fleets[0].operations == scenario.fleets[0].operations


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
    option = "operations={tax: {fraction_of_purchases: 0.1}, sales_tax: {fraction_of_purchases: 0.2}}"
    with pytest.raises(ScenarioErrors, match="tax: is an earlier name of sales_tax"):
        loaded(tmp_path, SCENARIO, option)


def test_mistakes_below_an_earlier_name_keep_their_lines(tmp_path: Path) -> None:
    with pytest.raises(ScenarioErrors) as error:
        loaded(tmp_path, SCENARIO.replace("fraction_of_purchases: 0.1", "fraction_of_purchases: 2"))
    [told] = error.value.errors
    assert (told.line, told.where) == (15, "fleets.0.operations.sales_tax.fraction_of_purchases")


def test_aliases_of_a_mapping_with_an_old_key_are_read(tmp_path: Path) -> None:
    shared = SCENARIO.replace("operations:\n      tax: {frac", "operations: &paid\n      tax: {frac")
    assert rate(loaded(tmp_path, f"{shared}operations: *paid\n").operations) == 0.1


SWEPT = (
    SCENARIO.replace("tax: {", "'tax'  :   {").replace("# What", "# 每月多少钱 🚀 What")
    + "requests_cost: true   # each request's part\n"
    + "sweep:\n  fleets.own.operations.tax.fraction_of_purchases: [0.1, 0.2]   # operations.tax\n"
)
EDITS = (
    ("'tax'  :", "sales_tax  :"),
    ("{rental_unused: 0.02}", "{unused commitment: 0.02}"),
    ("\nrequests_cost: true", "\ncost_per_request: true"),
    ("own.operations.tax.fr", "own.operations.sales_tax.fr"),
    ("workload:\n  arr", "schema_version: 1\nworkload:\n  arr"),
)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_migration_renames_keys_and_keeps_every_other_character(tmp_path: Path, end: str) -> None:
    file, renewed = tmp_path / "s.yaml", SWEPT
    for old, new in EDITS:
        assert old in renewed
        renewed = renewed.replace(old, new, 1)
    file.write_bytes(f"\ufeff{SWEPT}".replace("\n", end).encode())
    migration, swept = migrate(file), "fleets.own.operations.tax.fraction_of_purchases"
    assert migration.text == f"\ufeff{renewed}".replace("\n", end)
    assert [(one.line, one.where, one.message) for one in migration.changes] == [
        (0, "schema_version", "1 is added"),
        (15, "fleets.0.operations.tax", "is sales_tax now"),
        (17, "finance.inflation.rental_unused", "is unused commitment now"),
        (18, "requests_cost", "is cost_per_request now"),
        (20, f"sweep.{swept}", f"is {swept.replace('tax', 'sales_tax')} now"),
    ]
    file.write_bytes(migration.text.encode())
    assert migrate(file) == Migration(migration.text, ())
    both = [loaded(tmp_path, text).model_copy(update={"sweep": None}) for text in (migration.text, SWEPT)]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    "path",
    [
        *sorted((ROOT / "scenarios").rglob("*.yaml"))[::9],
        "{fleets: [{operations: {tax: 1}}]}",
        "{sweep: {requests_cost: [true]}}",
        "{}",
    ],
)
def test_a_migrated_file_holds_the_same_data_and_its_version(tmp_path: Path, path: Path | str) -> None:
    (tmp_path / "s.yaml").write_text(path if isinstance(path, str) else path.read_text())
    before = read(tmp_path / "s.yaml").data
    after = read_text(migrate(tmp_path / "s.yaml").text, "").data
    old = [*old_keys(before), *([(("sweep", "requests_cost"), "cost_per_request")] if str(path)[:2] == "{s" else [])]
    for place, name in old:
        value_at(before, place[:-1])[name] = value_at(before, place[:-1]).pop(place[-1])
    assert after == ({"schema_version": 1} | before if before else {})


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("9", "9 is later than 1, the newest that this gpufleet reads; pip install --upgrade gpufleet"),
        ("two", "is 'two': a number from 1 on is needed"),
        ("0", "is 0: a number from 1 on is needed"),
        ("true", "is True: a number from 1 on is needed"),
    ],
)
def test_a_version_that_is_none_or_later_is_refused_at_its_line(tmp_path: Path, version: str, told: str) -> None:
    text = SCENARIO.replace("horizon_s", f"schema_version: {version}\nhorizon_s")
    for read_it in (lambda: loaded(tmp_path, text), lambda: migrate(tmp_path / "s.yaml")):
        with pytest.raises(ScenarioErrors) as error:
            read_it()
        [one] = error.value.errors
        assert (one.line, one.where, one.message) == (5, "schema_version", told)


def test_a_file_of_another_tool_is_not_migrated(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("name: a\nservices: {}\nverison: 3\n")
    with pytest.raises(ScenarioErrors, match=r"compose\.yaml:3: verison: unknown key"):
        migrate(tmp_path / "compose.yaml")


def test_a_scenario_is_the_same_with_its_version(tmp_path: Path) -> None:
    with_version = loaded(tmp_path, f"{SCENARIO}schema_version: 1\n")
    assert dump(as_data(with_version)) == dump(as_data(loaded(tmp_path, SCENARIO)))
