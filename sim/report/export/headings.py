"""Headings of a workbook's sheets in languages other than English; English headings are the columns' names."""

import re

from sim.language import ENGLISH, N_, _, current
from sim.report.words.money import heading_mark
from sim.report.words.text import axis_label
from sim.study.metrics.columns import BY_NAME

HEADINGS = {
    "fleet": N_("fleet"),
    "candidate": N_("candidate"),
    "component": N_("component"),
    "replication": N_("replication"),
    "model": N_("model"),
    "units": N_("units"),
    "months": N_("months"),
    "month": N_("month"),
    "date": N_("date"),
    "usd_per_h": N_("levelised cost [USD/h]"),
    "usd_per_month": N_("cost [USD/month]"),
    "at_least_usd_per_h": N_("lower bound of the cost [USD/h]"),
    "operating_usd_per_month": N_("operating cost [USD/month]"),
    "irr_against": N_("returns against"),
    "levelised_running_usd_per_h": N_("levelised operating cost [USD/h]"),
    "first_month_running_usd_per_h": N_("operating cost, first month [USD/h]"),
    "prompts_usd_per_million_prompt_tokens": N_("prompts [USD per million prompt tokens]"),
    "answers_usd_per_million_output_tokens": N_("answers [USD per million output tokens]"),
    "net_present_cost_usd": N_("net present cost [USD]"),
    "utilisation": N_("utilisation"),
    "capital_usd_per_h": N_("capital [USD/h]"),
    "output_tokens_per_h": N_("output tokens per hour"),
    "cash_usd": N_("payments so far [USD]"),
    "among": N_("compared"),
    "input": N_("input"),
    "now": N_("now"),
    "cheapest_now": N_("cheapest now"),
    "tips_below": N_("cheapest changes below"),
    "then_below": N_("cheapest below it"),
    "tips_above": N_("cheapest changes above"),
    "then_above": N_("cheapest above it"),
    "searched_from": N_("searched from"),
    "searched_to": N_("searched to"),
    "unit_capacity": N_("capacity of a unit"),
    "unit_gpus": N_("GPUs of a unit"),
    "units_first": N_("units, first month"),
    "units_last": N_("units, last month"),
    "bought": N_("units bought"),
    "retired": N_("units retired"),
    "rented_unit_months": N_("rented unit-months"),
    "owed_unit_months": N_("unit-months of existing rent"),
    "months_short": N_("months short of capacity"),
    "resale_usd": N_("resale [USD]"),
    "decommissioning_usd": N_("decommissioning [USD]"),
    "opex_usd": N_("operating cost [USD]"),
    "rental_usd": N_("rent [USD]"),
    "total_usd": N_("total [USD]"),
    "discount_rate": N_("discount rate per year"),
    "output_tokens": N_("output tokens"),
    "prompt_tokens": N_("prompt tokens"),
    "cached_tokens": N_("cached tokens"),
    "levelised_usd_per_million_output_tokens": N_("levelised cost [USD per million output tokens]"),
    "demand": N_("demand, mean"),
    "peak_demand": N_("demand, busiest hours"),
    "units_needed": N_("units needed"),
    "ordered": N_("units ordered"),
    "on_order": N_("units on order"),
    "owned_in_service": N_("owned units in service"),
    "rented_in_service": N_("rented units in service"),
    "capacity": N_("capacity"),
    "shortfall": N_("shortfall"),
    "net_cost_usd": N_("net cost [USD]"),
    "cumulative_cost_usd": N_("cost so far [USD]"),
    "present_cost_usd": N_("present cost [USD]"),
    "request": N_("request"),
    "service": N_("service"),
    "tenant": N_("tenant"),
    "session": N_("session"),
    "turn": N_("turn"),
    "attempts": N_("attempts"),
    "pool": N_("pool"),
    "replica": N_("replica"),
    "priority": N_("priority"),
    "measured": N_("measured"),
    "arrived_s": N_("arrived [s]"),
    "started_s": N_("started [s]"),
    "first_token_s": N_("first token [s]"),
    "finished_s": N_("finished [s]"),
    "slo_met": N_("within the SLO"),
    "gpu_capital_usd": N_("GPU capital [USD]"),
    "server_capital_usd": N_("server capital [USD]"),
    "deployment_usd": N_("deployment [USD]"),
    "maintenance_usd": N_("maintenance [USD]"),
    "staff_usd": N_("staff [USD]"),
    "hosting_usd": N_("hosting [USD]"),
    "energy_usd": N_("energy [USD]"),
    "line": N_("line"),
    "planned_quantity": N_("planned quantity"),
    "actual_quantity": N_("actual quantity"),
    "planned_usd": N_("planned [USD]"),
    "actual_usd": N_("actual [USD]"),
    "variance_usd": N_("variance [USD]"),
    "price_variance_usd": N_("price variance [USD]"),
    "quantity_variance_usd": N_("quantity variance [USD]"),
    "financing": N_("financing"),
    "after_tax_net_present_cost_usd": N_("net present cost after tax [USD]"),
    "equivalent_annual_cost_usd": N_("equivalent annual cost [USD]"),
    "real_discount_rate": N_("real discount rate per year"),
    "real_usd_per_h": N_("levelised cost in today's money [USD/h]"),
    "real_usd_per_million_output_tokens": N_("levelised cost in today's money [USD per million output tokens]"),
    "real_levelised_usd_per_million_output_tokens": N_(
        "levelised cost in today's money [USD per million output tokens]"
    ),
    "real_equivalent_annual_cost_usd": N_("equivalent annual cost in today's money [USD]"),
    "real_irr": N_("real IRR"),
    "wacc": N_("WACC"),
    "irr": N_("IRR"),
    "mirr": N_("MIRR"),
    "net_present_value_with_revenue_usd": N_("net present value with revenue [USD]"),
    "irr_with_revenue": N_("IRR with revenue"),
    "mirr_with_revenue": N_("MIRR with revenue"),
    "real_irr_with_revenue": N_("real IRR with revenue"),
    "payback_months_with_revenue": N_("payback with revenue [months]"),
    "discounted_payback_months_with_revenue": N_("discounted payback with revenue [months]"),
    "cash_with_revenue_usd": N_("cash with revenue [USD]"),
    "payback_months": N_("payback [months]"),
    "discounted_payback_months": N_("discounted payback [months]"),
    "against": N_("returns against"),
    "fiscal_year": N_("fiscal year"),
    "fiscal_year_ends": N_("end of the fiscal year"),
    "operating_usd": N_("operating cost [USD]"),
    "purchase_usd": N_("purchase [USD]"),
    "sale_usd": N_("sale [USD]"),
    "loan_drawn_usd": N_("loan drawn [USD]"),
    "interest_usd": N_("interest [USD]"),
    "principal_usd": N_("principal [USD]"),
    "lease_usd": N_("lease payments [USD]"),
    "deposit_usd": N_("deposit [USD]"),
    "working_capital_usd": N_("working capital [USD]"),
    "carbon_price_usd": N_("carbon price [USD]"),
    "prepaid_rent_usd": N_("prepaid rent [USD]"),
    "income_tax_usd": N_("income tax [USD]"),
    "after_tax_cost_usd": N_("cost after tax [USD]"),
    "operating_expense_usd": N_("operating expense [USD]"),
    "depreciation_expense_usd": N_("depreciation [USD]"),
    "disposal_loss_expense_usd": N_("loss on disposal [USD]"),
    "interest_expense_usd": N_("interest [USD]"),
    "lease_interest_expense_usd": N_("interest on leases [USD]"),
    "lease_amortisation_expense_usd": N_("amortisation of leases [USD]"),
    "lease_cost_expense_usd": N_("operating lease cost [USD]"),
    "income_tax_expense_usd": N_("income tax [USD]"),
    "expenses_usd": N_("expenses [USD]"),
    "revenue_usd": N_("revenue [USD]"),
    "revenue_tax_usd": N_("income tax on revenue [USD]"),
    "profit_usd": N_("profit [USD]"),
    "gross_balance_usd": N_("hardware, gross [USD]"),
    "accumulated_balance_usd": N_("accumulated depreciation [USD]"),
    "net_balance_usd": N_("hardware, net [USD]"),
    "right_of_use_balance_usd": N_("right-of-use assets [USD]"),
    "deposit_balance_usd": N_("deposits [USD]"),
    "receivable_balance_usd": N_("deposits paid and VAT to recover [USD]"),
    "payable_balance_usd": N_("due to suppliers [USD]"),
    "loan_balance_usd": N_("loan [USD]"),
    "lease_liability_balance_usd": N_("lease liability [USD]"),
    "paid_in_balance_usd": N_("paid in by owners [USD]"),
    "retained_balance_usd": N_("retained result [USD]"),
    "assets_usd": N_("assets [USD]"),
    "liabilities_usd": N_("liabilities [USD]"),
    "equity_usd": N_("equity [USD]"),
}
"""Column of other tables than summary.csv -> heading, with its unit; USD stands for the reporting currency."""
LATENCIES = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "e2e_s": "E2E",
}
"""Column of a latency, without its statistic -> its name."""
STATISTIC = re.compile(r"(.+_s)_(mean|p[\d.]+)")
WORDED = frozenset({"why", "reason", "status", "slo_verdict", "input", "unit", "financing", "spare_kind"})
"""Columns whose cells are shown in the language of the command."""
STATUSES = (N_("meets"), N_("misses"), N_("not simulated"), N_("over budget"), N_("impossible"))
"""Values of `status` in size.csv, for translation."""
CELLS = {
    "among": {"all": N_("all candidates"), "machines": N_("machines only")},
    "month": {"end": N_("end of the plan")},
}
"""Column -> word in its cells -> text shown for it in languages other than English."""
HALF_WIDTH = re.compile(r"(.+)_ci95(?:_(low|high))?")


def heading(name: str, currency: str = "USD") -> str:
    """Return the heading of the column *name*; in English the name itself, which is that of the tables in files."""
    if current() == ENGLISH:
        return name
    if interval := HALF_WIDTH.fullmatch(name):
        ends = {"low": _("95 % interval, low end"), "high": _("95 % interval, high end")}
        return f"{heading(interval[1], currency)} {ends.get(interval[2], _('half of the 95 % interval'))}"
    if (statistic := STATISTIC.fullmatch(name)) and statistic[1] in LATENCIES:
        return f"{LATENCIES[statistic[1]]} {_('mean') if statistic[2] == 'mean' else statistic[2]} [s]"
    plain = re.sub(rf"(?<![A-Za-z]){currency}(?![A-Za-z])", "usd", name)
    if found := BY_NAME[plain].sheet if plain in BY_NAME else HEADINGS.get(plain):
        return _(found).replace("USD", heading_mark(currency))
    label = axis_label(name)
    return label if label != name else _(name.replace("_", " ").replace("gpu", "GPU"))
