"""Loans, tax depreciation, cash after tax, NPV and IRR against NREL SAM's cash-loan model: a table of money.md.

    python benchmarks/pysam_oracle.py

Needs NREL-PySAM (7.1.1) in an environment with gpufleet; nothing else of the project does. SAM's model has at most 50
periods, which it calls years. A case states whether such a period is a year or a month of gpufleet, and for which
quantities both then say the same. SAM's savings of energy stand for the receipts of a fleet: they are taxed, and
operating cost, interest and depreciation are deducted.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import fsum
from typing import Any

import PySAM.Cashloan
from PySAM.PySSC import PySSC

from sim.cost.financing import LINES, Holding, Loan, cost_of_capital, financed, internal_rate, net_present_usd
from sim.cost.income_tax import IncomeTax, TaxDepreciation
from sim.cost.time_value import MONTHS_PER_YEAR

PRICE, SALE, RECEIPT, COST, DISCOUNT, TAX = 1_000_000.0, 100_000.0, 400_000.0, 50_000.0, 0.08, 0.25
"""Purchase and sale [USD], receipts and operating cost per year [USD], discount rate per year, tax rate."""
DEPRECIATIONS = {"macrs_5": 1, "straight_line": 2, "table": 3}
"""Depreciation of gpufleet -> type of SAM."""
MACRS = TaxDepreciation(method="macrs_5")
HEAD = "| Case | Quantity | SAM | gpufleet | Largest difference |"


@dataclass(frozen=True)
class OracleCase:
    """Purchase that both models state."""

    name: str
    periods: int
    """SAM's periods."""
    months: int
    """Months of gpufleet in each of them: 12 or 1."""
    loan: Loan | None = None
    rate_of: int = 1
    """Periods of SAM over which the loan's rate per year is divided."""
    tax: float = TAX
    depreciation: TaxDepreciation = MACRS
    quantities: tuple[str, ...] = ("depreciation", "cash after tax", "NPV", "IRR")
    retimed: bool = False
    """True if gpufleet's tax (months) or loan (years) is paid at SAM's times."""

    @property
    def discount(self) -> float:
        """Discount rate per period."""
        return float((1 + DISCOUNT) ** (self.months / MONTHS_PER_YEAR) - 1)

    @property
    def share(self) -> float:
        """Part of a year in one period."""
        return self.months / MONTHS_PER_YEAR


LOAN = Loan(share=0.6, rate=0.07, term_months=36)
BY_MONTH = OracleCase("loan and tax, 48 months; SAM's tax is paid by month", 48, 1, LOAN, 12,
                      depreciation=TaxDepreciation(table=(0.4, 0.3, 0.2, 0.1)),
                      quantities=("interest", "cash after tax by year", "NPV", "IRR"))  # fmt: skip
BY_YEAR = OracleCase("loan and tax, 7 years; SAM's loan is repaid by year", 7, 12, LOAN,
                     quantities=("interest", "cash after tax", "NPV", "IRR", "WACC"))  # fmt: skip
CASES = (
    OracleCase("own money, MACRS, 7 years", 7, 12),
    OracleCase("own money, straight line over 5 years", 7, 12, depreciation=TaxDepreciation(years=5)),
    OracleCase("loan by month, no tax, 48 months", 48, 1, LOAN, 12, tax=0.0,
               quantities=("interest", "principal", "loan owed", "cash after tax", "NPV", "IRR")),
    BY_MONTH,
    replace(BY_MONTH, name="the same, gpufleet's tax by month", quantities=("NPV", "IRR"), retimed=True),
    BY_YEAR,
    replace(BY_YEAR, name="the same, gpufleet's loan by year", retimed=True),
)  # fmt: skip


def sam(case: OracleCase) -> dict[str, list[float]]:
    """Return quantity -> its values in SAM, by period."""
    periods, loan, terms = case.periods, case.loan, case.depreciation
    inputs: dict[str, Any] = {}
    for group in PySAM.Cashloan.default("PVWattsCommercial").export().values():
        inputs |= group
    deducted = [0.0] * periods
    for year, share in enumerate(terms.fractions, 1):
        deducted[min(periods, round(year / case.share)) - 1] += 100 * share
    inputs |= {
        "market": 1, "analysis_period": periods, "total_installed_cost": PRICE,
        "salvage_percentage": 100 * SALE / PRICE, "debt_fraction": 100 * loan.share if loan else 0.0,
        "loan_rate": 100 * loan.rate / case.rate_of if loan else 5.0,
        "loan_term": loan.term_months / case.months if loan else 1,
        "federal_tax_rate": [100 * case.tax], "state_tax_rate": [0.0], "inflation_rate": 0.0,
        "real_discount_rate": 100 * case.discount, "system_capacity": 1.0, "om_capacity": [0.0],
        "om_fixed": [COST * case.share], "itc_fed_percent": [0.0], "depr_sta_type": 0,
        "depr_fed_type": DEPRECIATIONS["table" if terms.table else terms.method],
        "depr_fed_sl_years": terms.years, "depr_fed_custom": deducted,
        "annual_energy_value": [0.0, *[RECEIPT * case.share] * periods], "degradation": [0.0], "gen": [1.0] * 8760,
        "utility_bill_w_sys": [0.0] * (periods + 1), "utility_bill_wo_sys": [0.0] * (periods + 1),
        "true_up_credits_ym": [[0.0] * 12] * (periods + 1),
    }  # fmt: skip
    ssc = PySSC()
    ssc.module_exec_set_print(0)
    data, module = ssc.data_create(), ssc.module_create(b"cashloan")
    for name, value in inputs.items():
        kind = "number" if isinstance(value, int | float) else "matrix" if isinstance(value[0], Sequence) else "array"
        getattr(ssc, f"data_set_{kind}")(data, name.encode(), value)
    if not ssc.module_exec(module, data):
        raise RuntimeError(re.sub(r"\s+", " ", str(ssc.module_log(module, 0))))

    def listed(name: str) -> list[float]:
        return list(ssc.data_get_array(data, name.encode()))[: periods + 1]

    cash = listed("cf_after_tax_cash_flow")
    one = {name: [ssc.data_get_number(data, name.lower().encode())] for name in ("NPV", "IRR", "WACC")}
    per_year = round(1 / case.share)
    return {
        "depreciation": listed("cf_fed_depreciation"),
        "interest": listed("cf_debt_payment_interest"),
        "principal": listed("cf_debt_payment_principal"),
        "loan owed": listed("cf_debt_balance"),
        "cash after tax": cash,
        "cash after tax by year": [fsum(cash[k + 1 : k + 1 + per_year]) for k in range(0, periods, per_year)],
        "NPV": one["NPV"],
        "IRR": [(1 + one["IRR"][0] / 100) ** (1 / case.share) - 1],
        "WACC": [one["WACC"][0] / 100],
    }


def gpufleet(case: OracleCase) -> dict[str, list[float]]:
    """Return quantity -> its values in gpufleet, by SAM's periods; receipts and costs are at their ends."""
    last = case.periods * case.months
    paid = [(COST - RECEIPT) * case.share if month % case.months == 0 else 0.0 for month in range(1, last + 1)]
    tax = IncomeTax(rate=case.tax, depreciation=case.depreciation)
    months = financed(paid, [Holding(0, last, PRICE, SALE)], case.loan, tax)
    costs = [one.cost_usd for one in months]
    lines = {line: [one.lines_usd[line] for one in months] for line in LINES}
    if case.retimed and case.months == 1:
        shares = dict(zip(range(MONTHS_PER_YEAR, last + 1, MONTHS_PER_YEAR), case.depreciation.fractions, strict=False))
        profit = [-usd - lines["interest"][month] - PRICE * shares.get(month, 0.0) for month, usd in enumerate(paid, 1)]
        profit[-1] += SALE
        lines["income_tax"] = [0.0, *(case.tax * usd for usd in profit)]
        costs = [fsum(values) for values in zip(*lines.values(), strict=True)]
    elif case.retimed and case.loan is not None:
        term, rate = case.loan.term_months // MONTHS_PER_YEAR, MONTHS_PER_YEAR * case.loan.rate
        yearly = Loan(share=1, rate=rate, term_months=term)  # a year counts as a month
        costs = [one.cost_usd for one in financed(paid, [Holding(0, last, PRICE, SALE)], None, tax)]
        costs[0] -= case.loan.share * PRICE
        lines["interest"] = [0.0] * (last + 1)
        for year, part in enumerate(yearly.installments(case.loan.share * PRICE), 1):
            lines["interest"][MONTHS_PER_YEAR * year] = part.interest_usd
            costs[MONTHS_PER_YEAR * year] += (1 - case.tax) * part.interest_usd + part.principal_usd
    lines["cost"] = [-usd for usd in costs]

    def by_period(line: str, size: int = case.months) -> list[float]:
        values = lines[line]
        return [values[0], *(fsum(values[k : k + size]) for k in range(1, last + 1, size))]

    borrowed = _nominal(case.loan) if case.retimed and case.loan else case.loan
    fractions = [*case.depreciation.fractions, *[0.0] * case.periods]
    drawn = -by_period("loan_drawn")[0]
    return {
        "depreciation": [0.0, *(PRICE * share for share in fractions[: case.periods])],
        "interest": by_period("interest"),
        "principal": by_period("principal"),
        "loan owed": [drawn - repaid for repaid in accumulate(by_period("principal"))],
        "cash after tax": by_period("cost"),
        "cash after tax by year": by_period("cost", MONTHS_PER_YEAR)[1:],
        "NPV": [-net_present_usd(costs, DISCOUNT)],
        "IRR": [internal_rate([-usd for usd in costs]) or 0.0],
        "WACC": [cost_of_capital(borrowed, tax, DISCOUNT)] if borrowed else [],
    }


def _nominal(loan: Loan) -> Loan:
    """Return *loan* with the rate whose effective rate per year is the nominal one of *loan*."""
    return loan.model_copy(update={"rate": MONTHS_PER_YEAR * ((1 + loan.rate) ** (1 / MONTHS_PER_YEAR) - 1)})


def rows(case: OracleCase) -> list[str]:
    """Return the lines of the table for one case; a list is shown by its sum, its difference is the largest."""
    theirs, ours = sam(case), gpufleet(case)
    found = []
    for quantity in case.quantities:
        pairs = list(zip(theirs[quantity], ours[quantity], strict=True))
        scale = max(abs(value) for value, _ in pairs)
        wrong = max(abs(mine - value) for value, mine in pairs) / scale
        form = "{:.4%}" if quantity in ("IRR", "WACC") else "{:,.0f}"
        sums = " | ".join(form.format(fsum(values)) for values in zip(*pairs, strict=True))
        found.append(f"| {case.name} | {quantity} | {sums} | {wrong:.4%} |".replace("%", " %"))
    return found


if __name__ == "__main__":
    print("\n".join([HEAD, "| --- | --- | --- | --- | --- |", *(line for case in CASES for line in rows(case))]))
