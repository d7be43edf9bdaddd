"""Page for the board: question, recommendation, cash, risk, and what would change the recommendation."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from math import log
from typing import Any, NamedTuple

import pandas as pd

from sim.language import N_, _, ngettext, translate_rendered
from sim.report.breakeven import with_labels
from sim.report.export.stored_answer import StoredAnswer
from sim.report.financing_tables import WORTH
from sim.report.order_timing import NEVER, order_text
from sim.report.page.template import render
from sim.report.plan_tables import END
from sim.report.words.money import Currency, amount, converted_text, showing_in
from sim.report.words.text import AXIS_UNITS, percent, place, question_and_context
from sim.units import HOURS_PER_MONTH

COMMANDS = ("breakeven", "plan")
"""Commands whose answers have such a page."""
MOST_CHANGES = 6
"""Largest number of changes that are listed."""
MOST_ROWS = 5
"""Largest number of candidates in the table of cash."""


class BoardPage(NamedTuple):
    """Content of the page."""

    question: str
    recommendation: list[str]
    heads: list[str]
    rows: list[list[str]]
    """Cash: a row for each candidate."""
    risks: list[str]
    changes: list[str]


def board_html(answer: StoredAnswer) -> str:
    """Return the page of the finished answer of `breakeven` or `plan`, in the current language."""
    board = (_BreakevenPage if answer.command == "breakeven" else _PlanPage)(answer)
    with showing_in(board.currency(), answer.summary[board.key].astype(str)):
        page = board.page()
    scenario = str(answer.manifest.get("scenario", answer.folder.name))
    day = str(answer.manifest.get("started_at", ""))[:10]
    made = f"{board.changed() or scenario}, {day}, gpufleet {answer.manifest.get('version', '')}"
    return render("export/board.html.j2", page=page, name=scenario, made=made)


class _Board:
    """Sentences that both kinds of answers share."""

    key: str
    """First column of the tables: candidate or fleet."""
    usual: str
    """Question of an answer whose scenario states none."""

    def __init__(self, answer: StoredAnswer) -> None:
        self.answer, self.amount = answer, answer.amount
        self.cost = self.amount("net_present_cost_usd")
        ranked = answer.table(answer.main)
        self.ranked = ranked[ranked[self.cost].notna()].sort_values(self.cost, kind="stable")

    def page(self) -> BoardPage:
        """Return the content of the page."""
        stated = str(self.answer.scenario.get("question") or "")
        question = question_and_context(stated, "")[0] if stated and not self.changed() else _(self.usual)
        if self.ranked.empty:
            return BoardPage(question, [_("No candidate meets the service level.")], [], [], [], [])
        heads, rows = self.cash()
        shown = partial(with_labels, fleets=self.answer.candidates)
        changes = [*map(shown, self.changes())] or [_("No change within the searched ranges.")]
        rows = [[*map(shown, row)] for row in rows]
        return BoardPage(
            question, [*map(shown, self.recommendation())], heads, rows, [*map(shown, self.risks())], changes
        )

    def changed(self) -> str:
        """Return the scenario's name with the values from --set, which replace its question; empty without any."""
        name, stated = (str(self.answer.scenario.get(key) or "") for key in ("name", "question"))
        return question_and_context(stated, name)[0] if stated.startswith(f"{name} with ") else ""

    def currency(self) -> Currency:
        """Return the reporting currency, at the rate between the columns of the main table."""
        raw = self.answer.summary
        paid = raw[raw[self.cost].notna() & (raw[self.cost] != 0)].head(1)
        rate = float((paid["net_present_cost_usd"] / paid[self.cost]).iloc[0]) if len(paid) else 1.0
        return Currency(self.answer.currency, rate)

    @property
    def best(self) -> "pd.Series[Any]":
        """Row of the candidate with the lowest net present cost."""
        return self.ranked.iloc[0]

    @property
    def name(self) -> str:
        """Name of that candidate."""
        return str(self.best[self.key])

    def money(self, value: float) -> str:
        """Format an amount in the reporting currency."""
        return converted_text(value)

    def table(self, file: str) -> pd.DataFrame:
        """Return a further table of the answer; empty where it has none."""
        return self.answer.table(file) if (self.answer.folder / f"{file}.csv").exists() else pd.DataFrame()

    def recommendation(self) -> Iterator[str]:
        """Yield the choice, its gap to the next, and the way to finance it."""
        cost = float(self.best[self.cost])
        yield _("Choose {name}: net present cost {cash}.", name=self.name, cash=self.money(cost))
        if len(self.ranked) > 1:
            other = self.ranked.iloc[1]
            more = float(other[self.cost]) - cost
            yield _(
                "The next best, {name}, costs {cash} more ({percent}).",
                name=str(other[self.key]),
                cash=self.money(more),
                percent=percent(more / abs(cost)) if cost else "",
            )
        taxed = self.amount("after_tax_net_present_cost_usd")
        if taxed in self.ranked and self.ranked[taxed].notna().any():
            after = self.ranked.sort_values(taxed).iloc[0]
            template = N_("After financing and tax {name} costs least: {cash}.")
            if after[self.key] != self.name:
                template = N_("After financing and tax, however, {name} costs less: {cash}. Decide on that basis.")
            yield _(template, name=str(after[self.key]), cash=self.money(float(after[taxed])))
        worth = self.amount(WORTH)
        if worth in self.ranked and self.ranked[worth].notna().any():
            earner = self.ranked.sort_values(worth, na_position="first").iloc[-1]
            template = N_("With revenue, {name} has the highest net present value: {cash}.")
            yield _(template, name=str(earner[self.key]), cash=self.money(float(earner[worth])))
        ways = self.table("financing")
        ways = ways[ways[self.key] == self.name] if not ways.empty else ways
        if len(ways) > 1:
            way = ways.sort_values(taxed).iloc[0]
            cash = self.money(float(way[taxed]))
            yield _("Cheapest way to pay for it: {way}, {cash} after tax.", way=_(str(way["financing"])), cash=cash)

    def timing(self) -> Iterator[str]:
        """Yield the best month of order under future prices, with its probability."""
        found = self.table("timing")
        if found.empty or "cheapest_share" not in found:
            return
        own = found[found[self.key] == self.name]
        if own.empty:
            return
        best = own.sort_values("cheapest_share").iloc[-1]
        now, month = own.iloc[0], None if best["order_month"] == NEVER else int(best["order_month"]) - 1
        starts = now["order_date"] if isinstance(now["order_date"], str) else None
        text = _(
            "{when} is the cheapest in {percent} of the price scenarios; ordering now has a mean regret of {cash}.",
            when=order_text(month, best["meanwhile"] if isinstance(best["meanwhile"], str) else "", starts),
            percent=percent(float(best["cheapest_share"])),
            cash=self.money(float(now[self.amount("mean_regret_usd")])),
        )
        yield text[:1].upper() + text[1:]

    def earnings(self) -> dict[str, tuple[str, Callable[[float], str]]]:
        """Return column of the main table -> (heading, format) of the value and return with revenue."""
        found: dict[str, tuple[str, Callable[[float], str]]] = {
            self.amount(WORTH): (_("net present value with revenue"), self.money),
            "irr_with_revenue": (_("IRR with revenue"), percent),
        }
        return {name: one for name, one in found.items() if name in self.ranked and self.ranked[name].notna().any()}

    def cash(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and rows of the table of cash."""
        raise NotImplementedError

    def risks(self) -> Iterator[str]:
        """Yield the risks of the recommendation."""
        raise NotImplementedError

    def changes(self) -> Iterator[str]:
        """Yield what would make another candidate the best."""
        raise NotImplementedError


class _BreakevenPage(_Board):
    """Page of an answer of `breakeven`."""

    key, usual = "candidate", N_("Rent, buy, or pay an API?")

    def cash(self) -> tuple[list[str], list[list[str]]]:
        columns: dict[str, tuple[str, Callable[[float], str]]] = {
            self.amount("capex_usd"): (_("capital cost"), lambda usd: self.money(usd) if usd else ""),
            self.amount("first_month_running_usd_per_h"): (
                _("operating cost a month"),
                lambda usd: self.money(usd * HOURS_PER_MONTH),
            ),
            self.cost: (_("net present cost"), self.money),
            self.amount("after_tax_net_present_cost_usd"): (_("net present cost after tax"), self.money),
            "irr": (_("IRR"), percent),
            **self.earnings(),
        }
        known = {name: one for name, one in columns.items() if name in self.ranked and self.ranked[name].notna().any()}
        rows = []
        for row in self.ranked.head(MOST_ROWS).to_dict("records"):
            cells = {name: "" if pd.isna(row[name]) else form(row[name]) for name, (_head, form) in known.items()}
            if cells.get("irr"):
                cells["irr"] = _("{rate} against {other}", rate=cells["irr"], other=str(row["irr_against"]))
            rows.append([str(row[self.key]), *cells.values()])
        return [_("candidate"), *(head for head, _form in known.values())], rows

    def risks(self) -> Iterator[str]:
        own = self.table("cash")
        own = own[own["candidate"] == self.name]
        paid = [self.amount(f"{part}_usd") for part in ("purchase", "operating", "renewal")]
        total = float(own[paid].sum().sum())
        months = int(own["month"].max())
        yield _("Cash paid over {months} months: {cash}, before resale.", months=months, cash=self.money(total))
        if changes := self._tips():
            nearest, text = changes[0]
            yield _("Nearest tipping point, {percent} away: {text}", percent=percent(nearest), text=text)
        yield from self.timing()
        if len(self.ranked) > 1 and float(self.ranked.iloc[1][self.cost]) < 1.05 * float(self.best[self.cost]):
            yield _("The two best candidates are within 5 %: prices decide, not the fleet.")

    def changes(self) -> Iterator[str]:
        yield from (text for _distance, text in self._tips()[:MOST_CHANGES])

    def _tips(self) -> list[tuple[float, str]]:
        """Return (relative distance, sentence) of each tipping point among all candidates, the nearest first."""
        found = []
        table = self.table("tipping")
        for row in table[table["among"] == "all"].to_dict("records") if not table.empty else ():
            for side, template in (
                ("below", N_("{input} below {value} (now {now}): {then} is the cheapest.")),
                ("above", N_("{input} above {value} (now {now}): {then} is the cheapest.")),
            ):
                value, now = row[f"tips_{side}"], float(row["now"])
                if pd.notna(value) and now and value > 0:
                    unit = row["unit"] if isinstance(row["unit"], str) else ""
                    form = partial(place, unit) if unit in AXIS_UNITS else partial(amount, unit=unit)
                    text = _(template, input=translate_rendered(row["input"]), value=form(_three_digits(value, unit)),
                             now=form(_three_digits(now, unit)), then=str(row[f"then_{side}"]))  # fmt: skip
                    found.append((abs(value / now - 1), text))
        return sorted(found, key=lambda one: abs(log(1 + one[0])))


def _three_digits(value: float, unit: str) -> float:
    """Return *value* with three significant digits; amounts of money are rounded once converted."""
    return value if unit.startswith("USD") else float(f"{value:.3g}")


class _PlanPage(_Board):
    """Page of an answer of `plan`."""

    key, usual = "fleet", N_("What to order, and when?")

    def recommendation(self) -> Iterator[str]:
        yield from super().recommendation()
        months = self.table("plan")
        own = months[(months["fleet"] == self.name) & (months["ordered"] > 0)]
        orders = [f"{row['ordered']:.0f} ({row['date']:%Y-%m})" for row in own.to_dict("records")]
        if orders:
            yield _("Order units: {orders}.", orders=", ".join(orders[:MOST_CHANGES]))

    def cash(self) -> tuple[list[str], list[list[str]]]:
        months, net = self.table("plan"), self.amount("net_cost_usd")
        # the sales of the closing row are at the end of the plan's last month
        ends = [date - timedelta(days=1) if month == END else date
                for month, date in zip(months["month"], months["date"], strict=True)]  # fmt: skip
        months = months.assign(year=[self._year(date) for date in ends])
        years = list(dict.fromkeys(months["year"]))
        sums, sold = months.groupby(["fleet", "year"], sort=False)[net].sum(), self.earnings()
        rows = [
            [
                str(row["fleet"]),
                *(self.money(float(sums.get((row["fleet"], year), 0.0))) for year in years),
                self.money(row[self.amount("total_usd")]),
                self.money(row[self.cost]),
                *("" if pd.isna(row[name]) else form(row[name]) for name, (_head, form) in sold.items()),
            ]
            for row in self.ranked.head(MOST_ROWS).to_dict("records")
        ]
        heads = [_("fleet"), *years, _("total"), _("net present cost"), *(head for head, _form in sold.values())]
        return heads, rows

    def _year(self, date: datetime) -> str:
        """Return the heading of the year of *date*: the company's fiscal year if stated, else that of the calendar."""
        first = (self.answer.scenario.get("finance") or {}).get("fiscal_year_start_month") or 1
        if first == 1:
            return f"{date:%Y}"
        return _("year to {month}", month=f"{date.year + (date.month >= first)}-{first - 1:02}")

    def risks(self) -> Iterator[str]:
        short = self.best["months_short"]
        if pd.notna(short) and short:
            yield ngettext(
                "The capacity is short in {count} month.", "The capacity is short in {count} months.", int(short)
            )
        else:
            yield _("The capacity covers the busiest hours of every month.")
        owed = self.amount("owed_usd")
        if owed in self.ranked and pd.notna(self.best[owed]) and self.best[owed]:
            yield _("Rent due after the plan: {cash}.", cash=self.money(float(self.best[owed])))
        actual = self.table("variances")
        if not actual.empty:
            own = actual[actual["fleet"] == self.name][self.amount("variance_usd")].sum()
            yield _("Actual payments less planned ones so far: {cash}.", cash=self.money(float(own)))
        yield from self.timing()

    def changes(self) -> Iterator[str]:
        best = float(self.best[self.cost])
        for row in self.ranked.iloc[1 : 1 + MOST_CHANGES].to_dict("records"):
            more = row[self.cost] - best
            yield _(
                "{name} is the cheapest if it costs {cash} less ({percent} of its cost).",
                name=str(row["fleet"]),
                cash=self.money(more),
                percent=percent(more / row[self.cost]) if row[self.cost] else "",
            )
