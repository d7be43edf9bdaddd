"""Workbooks and billing rows of finished answers: what stands in them, and that the formulas come to our figures."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from datetime import datetime
from math import fsum
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import openpyxl
import pandas as pd
import pytest
from financed_answers import few_loads
from spreadsheet import Sheet
from typer.testing import CliRunner

from sim.cli import app
from sim.language import speaking
from sim.report.export.board import board_html
from sim.report.export.spreadsheet import Book
from sim.report.export.stored_answer import RECEIVED, StoredAnswer, read_answer
from sim.report.export.workbook import write_workbook

pytestmark = pytest.mark.slow

SCENARIO = """\
# Buy or rent?
name: small
workload:
  arrivals: {process: poisson, rate_rps: 4}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 20}}
horizon_s: 8
slo: {ttft_s: 0.5}
fleets:
  - name: =own!A1
    pools:
      - name: "@SUM(1)"
        gpu: rtx-4090
        server: workstation-1x4090
        steptime: &step {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: &batching {policy: vllm, max_num_seqs: 2, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
    cost: {acquisition: buy}
    operations:
      sales_tax: {fraction_of_purchases: 0.1}
      decommissioning: {usd_per_server: 50}
      vat: {rate: 0.13, recoverable: 0.9, recovered_after_months: 3}
  - name: =Own!A1
    pools: [{gpu: rtx-4090, steptime: *step, batching: *batching}]
    cost: {acquisition: rent, quotes: {rtx-4090: 0.4}}
site: {electricity_usd_per_kwh: 0.2, pue: 1.2}
finance: {method: annuity, discount_rate: 0.08, life_years: 1, residual_fraction: 0.3, fx: {EUR: 1.08}, currency: EUR,
          inflation: {energy: 0.05}, loan: {share: 0.5, rate: 0.07, term_months: 10, grace_months: 2},
          tax: {rate: 0.25}, books: ifrs_16}
carbon: {grid: usa, usd_per_t: 100}
revenue: {input: 0.5, output: 2.0}
plan: {years: 1.5, starts: 2027-01, demand: {growth_per_year: 1.0}, lead_time_months: 2}
breakeven: {months: 6}
"""


def made(*args: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, args)], prog_name="gpufleet")
    assert done.exit_code == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, a plan, a breakeven, and their workbooks."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "s.yaml").write_text(SCENARIO)
    quick = ("--workers", "1", "--no-report", "--quiet")
    made("run", folder / "s.yaml", "--set", "sweep={workload.arrivals.rate_rps: [2, 4]}", "--out", folder / "run",
             "--set", "fleets.1.cost.commitment={gpus: 2, months: 12, discount: 0.25}",
             "--replications", "2", *quick)  # fmt: skip
    made("plan", folder / "s.yaml", "--relative", "0.3", "--out", folder / "plan", *quick,
             "--set", "fleets.1.cost.commitment={gpus: 1, months: 5, discount: 0.25, upfront: partial}",
             "--set", "finance.fiscal_year_start_month=7")  # fmt: skip
    with few_loads():
        made("breakeven", folder / "s.yaml", "--out", folder / "breakeven", *quick)
    for name in ("run", "plan", "breakeven"):
        made("export", folder / name)
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def sheet(answers: Path, name: str, title: str, **names: float) -> Sheet:
    book = openpyxl.load_workbook(answers / f"{name}.xlsx")
    places = {one: defined.attr_text.split("!")[1] for one, defined in book.defined_names.items()}
    given = {one: names.get(one, book[title][place.replace("$", "")].value) for one, place in places.items()}
    return Sheet(book[title], given)


def under(on: Sheet, head: str) -> dict[str, float]:
    """First cell of a row -> calculated value under the first heading *head*, down to an empty row."""
    top = next(cell for row in on.sheet.iter_rows() for cell in row if cell.value == head)
    found: dict[str, float] = {}
    for row in range(top.row + 1, on.sheet.max_row + 1):
        if on.sheet[f"A{row}"].value is None:
            break
        found[str(on.sheet[f"A{row}"].value)] = on.value(f"{top.column_letter}{row}")
    return found


def by_name(path: Path, column: str, **where: str) -> dict[str, float]:
    """First column -> number in *column*, of the last row that fits."""
    return {
        next(iter(row.values())).removeprefix("'"): float(row[column])
        for row in rows(path)
        if all(row[name] == value for name, value in where.items())
    }


def test_the_sheets_are_those_that_were_promised(answers: Path) -> None:
    names = {}
    for name in ("run", "plan", "breakeven"):
        book = openpyxl.load_workbook(answers / f"{name}.xlsx", read_only=True)
        names[name] = book.sheetnames
        book.close()
    assert names["run"] == ["Summary", "Monthly bill", "Requests", "Assumptions"]
    for name in ("plan", "breakeven"):
        assert {"Summary", "Monthly bill", "Cash flow", "Assumptions"} <= set(names[name])


def test_months_of_a_plan_are_numbers_and_dates(answers: Path) -> None:
    book = openpyxl.load_workbook(answers / "plan.xlsx")
    rows = list(book["Months"].iter_rows(values_only=True))
    top = next(i for i, row in enumerate(rows) if row[0] == "fleet")
    first = dict(zip(rows[top], rows[top + 1], strict=True))
    assert (first["month"], first["date"]) == (1, datetime(2027, 1, 1))
    assert {row[1] for row in rows[top + 1 :]} == {*range(1, 19), "end"}
    assert first["date"] in {cell.value for cell in book["Cash flow"]["B"]}
    assert first["date"] in {cell.value for cell in book["Monthly bill"]["B"]}


def test_net_present_cost_of_a_plan_follows_the_discount_rate(answers: Path) -> None:
    ours = by_name(answers / "plan/summary.csv", "net_present_cost_EUR")
    assert under(sheet(answers, "plan", "Cash flow"), "net present cost") == pytest.approx(ours, abs=0.005)
    free = under(sheet(answers, "plan", "Cash flow", discount_rate=0.0), "net present cost")
    paid = by_name(answers / "plan/summary.csv", "total_EUR")
    assert free == pytest.approx(paid, abs=0.005)
    assert free != pytest.approx(ours, abs=1)


def test_a_stored_plan_with_received_above_zero_reads_as_costs(answers: Path, tmp_path: Path) -> None:
    old = tmp_path / "plan"
    shutil.copytree(answers / "plan", old)
    for name in ("summary.csv", "plan.csv"):
        frame = pd.read_csv(old / name)
        for before, now in RECEIVED.items():
            for column in [column for column in frame if column.startswith(now)]:
                frame[column] = -frame[column]
                frame = frame.rename(columns={column: before + column.removeprefix(now)})
        frame.to_csv(old / name, index=False)
    new, stored = (StoredAnswer(folder, {"question": {"command": "plan"}}) for folder in (answers / "plan", old))
    assert stored.table("plan").equals(new.table("plan"))
    assert list(stored.summary.net_present_cost_EUR) == list(new.summary.net_present_cost_EUR)


def test_net_present_cost_of_candidates_follows_rate_and_months(answers: Path) -> None:
    head = "net present cost"
    ours = by_name(answers / "breakeven/ranking.csv", "net_present_cost_EUR")
    assert under(sheet(answers, "breakeven", "Cash flow"), head) == pytest.approx(ours, abs=0.005)
    early = by_name(answers / "breakeven/months.csv", "net_present_cost_EUR", month="6")
    found = under(sheet(answers, "breakeven", "Cash flow", after_months=6), head)
    assert found == pytest.approx(early, abs=0.005)
    dear = under(sheet(answers, "breakeven", "Cash flow", discount_rate=0.5), head)
    assert all(dear[name] != pytest.approx(ours[name], abs=1) for name in ours)


@pytest.mark.parametrize("name", ["plan", "breakeven"])
def test_debt_tax_and_books_are_calculated_as_stored(answers: Path, name: str) -> None:
    stored = openpyxl.load_workbook(answers / f"{name}.xlsx", data_only=True)
    debt = sheet(answers, name, "Debt and tax", discount_rate=0.08)
    for on in (debt, debt.on("Cash after tax"), debt.on("Books")):
        title = on.sheet.title
        cells = [one.coordinate for row in on.sheet.iter_rows() for one in row if one.data_type == "f"]
        assert [on.value(one) for one in cells] == pytest.approx([stored[title][one].value for one in cells], abs=1e-6)
        assert len(cells) > 20
    heads = {one.value: one.column_letter for row in on.sheet.iter_rows() for one in row if one.data_type == "s"}
    for row in range(5, on.sheet.max_row + 1):
        assets, liabilities, equity = (on.value(f"{heads[f'{part}_EUR']}{row}") for part in PARTS)
        assert assets == pytest.approx(liabilities + equity, abs=1e-6)


@pytest.mark.parametrize(("name", "language"), [("plan", "en"), ("breakeven", "zh")])
def test_the_page_for_the_board_answers_five_questions(answers: Path, name: str, language: str) -> None:
    answer = read_answer(answers / name, main={"plan": "summary", "breakeven": "ranking"}[name])
    with speaking(language):
        text = board_html(answer)
    heads = {
        "en": ("Question", "Recommendation", "Cash", "Risk", "What would change it"),
        "zh": ("问题", "建议", "现金", "风险", "什么会改变它"),
    }
    assert [head for head in heads[language] if f"<h2>{head}</h2>" not in text] == []
    costs = by_name(answers / name / f"{answer.main}.csv", "net_present_cost_EUR")
    assert all(f"€{cost:,.0f}" in text for cost in costs.values())
    assert "USD" not in text
    # narrow screens show the heading beside each amount
    assert f'data-head="{"net present cost" if language == "en" else "净现成本"}">€' in text
    english = [one for one in ("is the cheapest", "rate_rps", "per h") if one in text]
    assert english == [] or language == "en"
    assert "2029" not in text  # the plan ends with 2028-06
    assert ("year to 2027-06" in text) == (name == "plan")
    best = min(costs, key=lambda one: costs[one])
    assert text.index(best) < min(text.index(one) for one in costs if one != best)


def test_a_chinese_workbook_keeps_names_and_translates_words(answers: Path, tmp_path: Path) -> None:
    answer = read_answer(answers / "breakeven", main="ranking", sheets=(("Tipping points", "tipping"),))
    with speaking("zh"):
        write_workbook(tmp_path / "book.xlsx", answer)
    book = openpyxl.load_workbook(tmp_path / "book.xlsx", read_only=True)
    words = {title: {one for row in book[title].iter_rows(values_only=True) for one in row}
             for title in ("转折点", "税后现金", "账簿")}  # fmt: skip
    assert {"自有资金", "贷款"} <= words["税后现金"] & words["账簿"]
    assert "=Own!A1 的租金" in words["转折点"]
    assert "所有候选方案" in words["转折点"]
    assert not {"rate_rps", "own money", "loan", "all"} & set.union(*words.values())


def test_cells_name_candidates_in_the_language_of_the_command(tmp_path: Path) -> None:
    with speaking("zh"):
        book = Book(tmp_path / "book.xlsx", "USD", {"two cards bought": "two cards", "two cards rented": "two cards"})
        page, top = book.sheet("Summary", "two cards")
        text = {"candidate": "two cards bought", "input": "rent of two cards rented", "among": "all"}
        book.table(page, top, pd.DataFrame([text]))
        book.close()
    (row,) = list(openpyxl.load_workbook(tmp_path / "book.xlsx").active.iter_rows(min_row=top + 2, values_only=True))
    assert row == ("two cards（自购）", "two cards（租用）的租金", "所有候选方案")


PARTS = ("assets", "liabilities", "equity")


def test_debt_follows_another_rate(answers: Path) -> None:
    on = sheet(answers, "breakeven", "Debt and tax", discount_rate=0.08)
    row = next(at for at in range(6, 12) if on.sheet[f"B{at}"].value == "loan")
    before = on.value(f"E{row}")
    drawn = -next(float(one["loan_drawn_EUR"]) for one in rows(answers / "breakeven/financed_months.csv")
                  if one["financing"] == "loan" and float(one["loan_drawn_EUR"]))  # fmt: skip
    # after two months of interest alone, eight equal installments; interest is deducted at the end of the year

    def worth(rate: float) -> float:
        equal = drawn * rate / 12 / (1 - (1 + rate / 12) ** -8)
        left, present, interest = drawn, 0.0, 0.0
        for month in range(1, 11):
            part = left * rate / 12
            repaid = equal - part if month > 2 else 0.0
            left, interest = left - repaid, interest + part
            present += (part + repaid) / 1.08 ** (month / 12)
        return present - 0.25 * interest / 1.08

    changed = sheet(answers, "breakeven", "Debt and tax", discount_rate=0.08)
    changed.sheet[f"C{row}"].value = 0.2
    assert changed.value(f"E{row}") - before == pytest.approx(worth(0.2) - worth(0.07), abs=1e-6)


def test_the_monthly_bill_sums_to_the_summary(answers: Path) -> None:
    on, summary = sheet(answers, "run", "Monthly bill"), answers / "run/summary.csv"
    assert under(on, "total") == pytest.approx(by_name(summary, "cost_EUR_per_month"), rel=1e-9)
    each = under(on, "EUR per million output tokens")
    assert each == pytest.approx(by_name(summary, "EUR_per_million_output_tokens"), rel=0.05)


def test_text_that_looks_like_a_formula_stays_text(answers: Path) -> None:
    book = openpyxl.load_workbook(answers / "run.xlsx")
    assert {cell.data_type for row in book["Summary"].iter_rows() for cell in row if cell.value == "=own!A1"} == {"s"}
    with ZipFile(answers / "plan.xlsx") as file:
        drawn = "".join(file.read(name).decode() for name in file.namelist() if name.startswith("xl/charts/chart"))
    assert set(re.findall("<c:f>([^!]*)!", drawn)) == {"'Cash flow'", "'Monthly bill'"}
    assert drawn.count("<c:f>") == len(re.findall("<c:f>[^!<]*!", drawn))


@pytest.fixture(scope="module")
def charges(answers: Path) -> list[dict[str, str]]:
    told = made("export", answers / "run", "--format", "focus")
    assert "no starts_at" in told
    return rows(answers / "run-focus.csv")


NEVER_NULL = (
    *("BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory"),
    *("ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost"),
    *("InvoiceIssuerName", "ListCost", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName"),
    *("ServiceSubcategory", "PricingCurrency", "PricingCurrencyEffectiveCost"),
)
MAY_BE_NULL = ("BillingAccountName", "ChargeClass", "ChargeDescription", "PricingQuantity", "PricingUnit", "InvoiceId")
"""Mandatory columns of FOCUS 1.2 by their content constraints, and others that have constraints."""
CATEGORIES = {"Usage", "Purchase", "Tax", "Credit", "Adjustment"}
FREQUENCIES = {"One-Time", "Recurring", "Usage-Based"}
PRICING = {"Standard", "Dynamic", "Committed", "Other"}


def test_focus_rows_keep_the_requirements_of_the_specification(charges: list[dict[str, str]]) -> None:
    assert {*NEVER_NULL, *MAY_BE_NULL} <= charges[0].keys()
    for row in charges:
        assert all(row[name] for name in NEVER_NULL)
        assert row["ChargeClass"] == ""  # no correction
        assert re.fullmatch("[A-Z]{3}", row["BillingCurrency"])
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[name]) for name in row if "Period" in name)
        assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
        assert (row["ChargeCategory"] in CATEGORIES, row["ChargeFrequency"] in FREQUENCIES) == (True, True)
        assert row["ChargeFrequency"] != "Usage-Based" or row["ChargeCategory"] != "Purchase"
        assert all("e+" not in row[name] for name in row if name.endswith(("Cost", "Price", "Quantity")))
        assert all(isinstance(value, str | int | float) for value in json.loads(row["Tags"]).values())
        priced = ("ListUnitPrice", "ContractedUnitPrice", "PricingQuantity", "PricingUnit", "SkuId", "SkuPriceId")
        priced += ("SkuMeter", "PricingCategory", "PricingCurrencyListUnitPrice", "PricingCurrencyContractedUnitPrice")
        assert all((row[name] == "") == (row["ChargeCategory"] == "Tax") for name in priced)
        assert row["PricingCategory"] in {*PRICING, ""}
        unused = row["CommitmentDiscountStatus"] == "Unused"
        assert (row["ConsumedQuantity"] == "") == (row["ChargeCategory"] != "Usage" or unused)
        assert (row["ConsumedUnit"] == "") == (row["ConsumedQuantity"] == "")
        if row["ChargeCategory"] != "Tax":
            product = float(row["ListUnitPrice"]) * float(row["PricingQuantity"])
            assert float(row["ListCost"]) == float(row["ContractedCost"]) == pytest.approx(product, rel=1e-12)
        if row["ChargeCategory"] == "Purchase":
            assert float(row["EffectiveCost"]) == 0
    assert list(charges[0]) == sorted(charges[0])
    priced_as = {(row["SkuPriceId"], row["ListUnitPrice"]) for row in charges if row["SkuId"]}
    assert len(priced_as) == len({price_id for price_id, _ in priced_as}), "a price id has one price"
    assert all(len({row["SkuId"] for row in charges if row["SkuPriceId"] == one}) == 1 for one, _ in priced_as)


def test_no_cell_of_any_table_is_a_formula(answers: Path, charges: list[dict[str, str]]) -> None:
    files = sorted(answers.rglob("*.csv"))
    assert {"run-focus.csv", "costs.csv", "plan.csv", "ranking.csv"} <= {file.name for file in files}
    for file in files:
        with file.open(encoding="utf-8", newline="") as opened:
            texts = [text for row in csv.reader(opened) for text in row]
        assert not [text for text in texts if text[:1] in set("=+@\t\r＝") or re.match(r"-\D", text)]
    assert {row["ResourceName"].partition(",")[0] for row in charges} == {"'@SUM(1)", "rtx-4090"}


def test_an_unused_commitment_is_idle_tax_and_a_phase_of_its_own(answers: Path, charges: list[dict[str, str]]) -> None:
    # 1 of 2 GPUs reserved at 0.4 $/h less a quarter is not used
    mine = [row for row in rows(answers / "run/costs.csv") if row["component"] == "unused commitment"]
    assert {row["phase"] for row in mine} == {"unused commitment"}
    cases = {(row["rate_rps"], row["replication"]): 0.0 for row in mine}
    for row in mine:
        cases[row["rate_rps"], row["replication"]] += float(row["amount_usd"])
    assert list(cases.values()) == pytest.approx([0.3 * 8 / 3600] * 4, abs=1e-9)
    for row in rows(answers / "run/summary.csv"):
        assert float(row["idle_tax_usd_per_h"]) > 0.3 or row["fleet"] == "'=own!A1"
    phases = {
        json.loads(row["Tags"])["gpufleet/phase"] for row in charges if row["CommitmentDiscountStatus"] == "Unused"
    }
    assert phases == {"unused commitment"}
    assert "unused commitment" in [cell.value for row in openpyxl.load_workbook(answers / "run.xlsx")["Monthly bill"]
                                   for cell in row]  # fmt: skip


def test_focus_rows_name_currencies_by_their_codes_of_iso_4217(answers: Path, tmp_path: Path) -> None:
    shutil.copytree(answers / "run", tmp_path / "run")
    for file in (tmp_path / "run").iterdir():  # the same run of a planner who writes RMB
        if file.suffix in (".csv", ".yaml"):
            file.write_text(file.read_text().replace("EUR", "RMB"))
    costs = (tmp_path / "run/costs.csv").read_text()
    (tmp_path / "run/costs.csv").write_text(costs.replace(",USD,", ",RMB,"))
    made("export", tmp_path / "run", "--format", "focus")
    found = rows(tmp_path / "run-focus.csv")
    codes = [{row[name] for row in found} for name in found[0] if name.endswith("Currency")]
    assert codes == [{"CNY"}, {"CNY"}]
    assert "RMB" not in (tmp_path / "run-focus.csv").read_text()


def test_focus_rows_of_a_commitment_have_its_purchase_and_its_use(charges: list[dict[str, str]]) -> None:
    mine = [row for row in charges if row["CommitmentDiscountId"]]
    used = [row for row in mine if row["CommitmentDiscountStatus"] == "Used"]
    unused = [row for row in mine if row["CommitmentDiscountStatus"] == "Unused"]
    bought = [row for row in mine if row["ChargeCategory"] == "Purchase"]
    assert min(map(len, (used, unused, bought))) > 0
    assert len(used) + len(unused) + len(bought) == len(mine)

    def total(name: str, rows: list[dict[str, str]]) -> float:
        return fsum(float(row[name]) for row in rows)

    assert total("BilledCost", bought) == pytest.approx(total("EffectiveCost", used + unused))
    assert total("BilledCost", used + unused) == total("EffectiveCost", bought) == 0
    assert total("ListCost", used) * 0.75 == pytest.approx(total("EffectiveCost", used), rel=1e-5)
    assert total("CommitmentDiscountQuantity", bought) == pytest.approx(
        total("CommitmentDiscountQuantity", used + unused)
    )
    assert {row["PricingCategory"] for row in used + unused} == {"Committed"}
    assert {row["ResourceId"] for row in bought} == {row["CommitmentDiscountId"] for row in mine}
    assert not any(row["CommitmentDiscountStatus"] for row in bought)
    in_dollars = [row for row in charges if row["PricingCurrency"] == "USD"]
    assert total("PricingCurrencyEffectiveCost", in_dollars) == pytest.approx(
        1.08 * total("EffectiveCost", in_dollars), rel=1e-6
    )


def test_effective_cost_is_the_bill_and_billed_cost_is_cash(answers: Path, charges: list[dict[str, str]]) -> None:
    ledger = rows(answers / "run/costs.csv")
    summary = {row["fleet"]: row for row in rows(answers / "run/summary.csv")}
    for fleet in ("'=own!A1", "'=Own!A1"):
        account = f"small/{fleet.removeprefix(chr(39))}/rate_rps=4/1"
        mine = [row for row in charges if row["BillingAccountId"] == account]
        booked = [row for row in ledger if (row["fleet"], row["rate_rps"], row["replication"]) == (fleet, "4", "1")]
        effective = fsum(float(row["EffectiveCost"]) for row in mine)
        assert effective == pytest.approx(fsum(float(row["amount_EUR"]) for row in booked), rel=1e-12)
        once = fsum(float(row["BilledCost"]) for row in mine if row["ChargeFrequency"] == "One-Time")
        assert once == pytest.approx(float(summary[fleet]["capex_EUR"]))


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("plan", "--format", "focus"), "FOCUS rows come from a bill, and gpufleet plan writes none: export a run"),
        ((".",), "is not a finished run"),
        (("run", "--out", "no/where.xlsx"), "does not exist"),
        (("run", "--format", "ods"), "'ods' is not one of 'xlsx', 'focus'"),
    ],
)
def test_what_cannot_be_exported_is_a_line(
    answers: Path, gpufleet: Callable[..., Any], args: tuple[str, ...], line: str
) -> None:
    done = gpufleet("export", *args, cwd=answers)
    assert done.returncode == 2
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_workbook_that_cannot_be_written_raises_the_error_of_the_machine(tmp_path: Path) -> None:
    book = Book(tmp_path / "none" / "book.xlsx", "USD")
    book.sheet("Summary", "summary")
    with pytest.raises(FileNotFoundError):
        book.close()
