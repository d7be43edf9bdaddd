"""Report on the time of purchase: timing.csv, its table, and a sentence for each purchase."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.cost.multi_year import month_after
from sim.language import N_, _
from sim.report.page.page import PageTable
from sim.report.run.tables import write_rows
from sim.report.words.money import cash, in_code
from sim.report.words.text import listing, percent
from sim.study.order_timing import OrderTime, OrderTiming

Timings = Mapping[str, OrderTiming]
"""Purchase -> months of order that are compared."""
NEVER = "never"
QUANTILES = (10, 50, 90)
MEANWHILE = {"": "", "rent": N_("rented"), "api": N_("API")}


def timing_rows(found: Timings, key: str, starts: str | None) -> list[dict[str, Any]]:
    """Return the rows of timing.csv: a row per purchase, in the column *key*, and month of order.

    *starts* is the first month; None: it has no date.
    """
    rows = []
    for name, timing in found.items():
        quantiles = timing.quantiles_usd(*(percentile / 100 for percentile in QUANTILES))
        for i, one in enumerate(timing.times):
            row: dict[str, Any] = {
                key: name,
                "order_month": NEVER if one.month is None else one.month + 1,
                "order_date": "" if one.month is None or starts is None else month_after(starts, one.month),
                "meanwhile": one.meanwhile,
                "net_present_cost_usd": one.expected_usd,
            }
            if timing.draws:
                row |= {"mean_usd": timing.means_usd[i]}
                row |= {f"p{p}_usd": usd for p, usd in zip(QUANTILES, quantiles[i], strict=True)}
                row |= {
                    "value_of_waiting_usd": timing.values_of_waiting_usd[i],
                    "cheapest_share": timing.cheapest_shares[i],
                    "cheaper_than_now_share": timing.shares_below_now[i],
                    "mean_regret_usd": timing.regrets_usd[i],
                }
            rows.append({name: value.item() if hasattr(value, "item") else value for name, value in row.items()})
    return rows


def write_timing(folder: Path, found: Timings, key: str, starts: str | None) -> None:
    """Write timing.csv into *folder*; nothing without times that are compared."""
    if found:
        rows = timing_rows(found, key, starts)
        write_rows(folder / "timing.csv", rows, list(dict.fromkeys(name for row in rows for name in row)))


def timing_sentences(found: Timings, starts: str | None) -> Iterator[str]:
    """Yield, for each purchase, the best time of order, its probability, its regret and the value of waiting."""
    for name, timing in found.items():
        now, best = timing.times[0], timing.times[timing.best]
        means, regrets = timing.means_usd, timing.regrets_usd
        if timing.best:
            text = N_("{name}: {best} costs least, {cash}; ordering now costs {more} more.")
            other = float(means[0] - means[timing.best])
        else:
            text = N_("{name}: {best} costs least, {cash}; {next} costs {more} more.")
            following = min(range(1, len(means)), key=lambda i: means[i])
            now, other = timing.times[following], float(means[following] - means[0])
        of_draws = _("{name}, mean of {draws:,} draws", name=name, draws=timing.draws)
        yield _(
            text,
            name=of_draws if timing.draws else name,
            best=_time(best, starts),
            cash=cash(float(means[timing.best])),
            next=_time(now, starts),
            more=cash(other),
        )
        if timing.draws:
            shares = timing.cheapest_shares
            never = sum(float(shares[i]) for i, one in enumerate(timing.times) if one.month is None)
            parts = [
                _("ordering now in {share}", share=percent(float(shares[0]))),
                _("a later order in {share}", share=percent(max(0.0, 1 - float(shares[0]) - never))),
                _("no order in {share}", share=percent(never)),
            ]
            text = N_("Cheapest for {name} in {draws:,} draws: {listing}. Mean regret of {best}: {regret}.")
            if timing.best:
                text = N_(
                    "Cheapest for {name} in {draws:,} draws: {listing}. Mean regret: {best} {regret}, ordering now "
                    "{now}."
                )
            yield _(
                text,
                name=name,
                draws=timing.draws,
                listing=listing(parts),
                best=_time(best, starts),
                regret=cash(float(regrets[timing.best])),
                now=cash(float(regrets[0])),
            )


def _time(one: OrderTime, starts: str | None) -> str:
    return order_text(one.month, one.meanwhile, starts)


def order_text(month: int | None, meanwhile: str, starts: str | None) -> str:
    """Describe an order in *month* (from 0 on; None: never), with the supply until then, for a sentence."""
    if month is None:
        return _("using the API throughout") if meanwhile == "api" else _("renting throughout")
    if month == 0:
        return _("ordering now")
    when = _("in month {month}", month=month + 1) if starts is None else _("in {date}", date=month_after(starts, month))
    template = {
        "rent": N_("renting and ordering {when}"),
        "api": N_("using the API and ordering {when}"),
        "": N_("ordering {when}"),
    }[meanwhile]
    return _(template, when=when)


def timing_table(found: Timings, starts: str | None) -> PageTable:
    """Build the table of the months of order; *starts* as in `timing_rows`."""
    heads = [_("purchase"), _("order"), _("until then"), in_code(_("net present cost [USD]"))]
    drawn = any(timing.draws for timing in found.values())
    if drawn:
        heads += [
            "10 %",
            "90 %",
            _("cheapest in"),
            in_code(_("mean regret [USD]")),
            in_code(_("value of waiting [USD]")),
        ]
    rows = []
    for name, timing in found.items():
        spread = timing.quantiles_usd(0.1, 0.9)
        for i, one in enumerate(timing.times):
            when = _("never") if one.month is None else _("month {month}", month=one.month + 1)
            if one.month is not None and starts is not None:
                when = month_after(starts, one.month)
            cells = [name, when, _(MEANWHILE[one.meanwhile]), cash(float(timing.means_usd[i]))]
            if drawn:
                cells += [cash(float(usd)) for usd in spread[i]]
                cells += [percent(float(timing.cheapest_shares[i])), cash(float(timing.regrets_usd[i]))]
                cells += [cash(float(timing.values_of_waiting_usd[i]))]
            rows.append(cells)
    note = _("Every row serves the same load. The value of waiting is the mean saving over ordering now.")
    return PageTable(_("When to order"), note, heads, rows, worded=(1, 2), folded=True)
