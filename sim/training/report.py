"""Report of a training job: verdict, tables, charts, and the overview that `gpufleet check` prints.

The verdict names the fastest and the cheapest fleet, and why other fleets cannot run the job. Charts show time and
cost over the number of GPUs, else over the first numeric axis of the sweep, else by fleet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from sim.cost.ledger import Ledger
from sim.language import N_, _, translate_rendered
from sim.report.charts.panels import ChartCurve, Panel, style
from sim.report.charts.picture import KeyEntry
from sim.report.page.page import PageTable, text_table
from sim.report.sources import notes, values_and_sources
from sim.report.terminal_table import Sentence
from sim.report.words.money import cash, in_code, money_mark, shown
from sim.report.words.text import axis_label, listing, percent, places, plain, ranged, readable_name, short
from sim.training.outcome import JobRow, parts
from sim.units import GB, HOURS_PER_DAY, NANO_PER_USD, SECONDS_PER_HOUR


def component_rows(ledgers: Sequence[Ledger]) -> list[list[str]]:
    """Return the rows (component, amount in each of *ledgers*); cells without that component are empty."""
    bills = [ledger.by_component() for ledger in ledgers]
    names = list(dict.fromkeys(name for bill in bills for name in bill))
    return [
        [readable_name(name), *(cash(bill[name] / NANO_PER_USD) if name in bill else "" for bill in bills)]
        for name in names
    ]


Show = Callable[[Any], str]
RESULTS: tuple[tuple[str, str, Show], ...] = (
    ("gpus", "GPUs", str),
    ("step_s", N_("step [s]"), plain),
    ("mfu", N_("of the peak (MFU)"), percent),
    ("tokens_per_s", "tokens/s", plain),
    ("samples_per_s", "samples/s", plain),
    ("makespan_h", N_("time [h]"), plain),
    ("energy_kwh", N_("energy [kWh]"), plain),
    ("cost_usd", N_("cost"), cash),
    ("peak_memory_gb", N_("memory [GB]"), plain),
)
"""Rows (column of summary.csv, heading, format of a value)."""


def results(rows: Sequence[JobRow]) -> PageTable:
    """Return the table of results, a row per fleet and sweep point."""
    axes = list(rows[0].outcome.plan.axes)
    tokens = any(row.cells.get("tokens_per_s") is not None for row in rows)
    shown = [one for one in RESULTS if any(row.cells.get(one[0]) is not None for row in rows)]
    shown = [one for one in shown if one[0] != ("samples_per_s" if tokens else "tokens_per_s")]
    return PageTable(
        _("Results"),
        _("Times are expected values; the time of a step holds while nothing fails."),
        [_("fleet"), *map(axis_label, axes), *(in_code(_(head)) for _name, head, _show in shown), _("limited by")],
        [
            [
                row.fleet,
                *(short(row.outcome.plan.axes[axis]) for axis in axes),
                *("" if (value := row.cells.get(key)) is None else show(value) for key, _, show in shown),
                _(row.cells["limited_by"]) if row.ok else _("cannot run"),
            ]
            for row in rows
        ],
        worded=(len(axes) + len(shown) + 1,),
    )


def step_table(rows: Sequence[JobRow]) -> PageTable:
    """Return the table of step time by cause [share]."""
    feasible = [row for row in rows if row.ok]
    found = [parts(row.outcome.plan.run.step) for row in feasible]
    causes = [cause for cause in found[0] if any(one[cause] > 5e-4 * sum(one.values()) for one in found)]
    return PageTable(
        _("Where the time of a step goes"),
        "",
        [_("cause"), *(_head(row) for row in feasible)],
        [[_(cause), *(percent(one[cause] / sum(one.values())) for one in found)] for cause in causes],
    )


MEMORY = {
    "weights_bytes": N_("weights"),
    "gradients_bytes": N_("gradients"),
    "states_bytes": N_("optimizer states"),
    "activations_bytes": N_("activations"),
    "logits_bytes": N_("logits"),
    "reserve_bytes": N_("reserve"),
    "total_bytes": N_("total"),
}


def memory_table(rows: Sequence[JobRow]) -> PageTable:
    """Return the table of memory on the fullest GPU by use [GB]."""
    body = [
        [_(words), *(plain(getattr(row.outcome.plan.run.bound.memory, field) / GB) for row in rows)]
        for field, words in MEMORY.items()
    ]
    body.append([_("the GPU has"), *(plain(row.cells["memory_gb"]) for row in rows)])
    return PageTable(_("Memory of the fullest GPU [GB]"), "", [_("part"), *map(_head, rows)], body)


def layout_table(rows: Sequence[JobRow]) -> PageTable:
    """Return the table of the job's parallelism and settings per fleet and sweep point."""
    keys = ("gpus", "servers", "dp", "tp", "pp", "zero", "recompute", "micro_batch", "precision", "framework")
    return PageTable(
        _("Layout"),
        _("dp, tp, pp: data-, tensor- and pipeline-parallel ranks; zero: ZeRO stage; micro_batch: samples at once"),
        ["fleet", *(key.replace("_", " ") for key in keys)],
        [[_head(row), *(str(row.cells[key]) for key in keys)] for row in rows],
    )


def cost_table(rows: Sequence[JobRow]) -> PageTable | None:
    """Return the table of cost by component; None without costs."""
    priced = [row for row in rows if row.outcome.ledger is not None]
    if not priced:
        return None
    body = component_rows([row.outcome.ledger for row in priced if row.outcome.ledger is not None])
    body.append([_("total"), *(cash(row.cells["cost_usd"]) for row in priced)])
    return PageTable(_("Cost of the job"), "", [_("component"), *map(_head, priced)], body)


def tables(rows: Sequence[JobRow], most: int = 12) -> list[PageTable]:
    """Return all tables; those with a column per row show only the first *most* rows."""
    few = rows[:most]
    found = [results(rows)]
    if any(row.ok for row in few):
        found.append(step_table(few))
    found += [memory_table(few), layout_table(few)]
    bill = cost_table(few)
    return [*found, bill] if bill is not None else found


def _head(row: JobRow) -> str:
    at = ", ".join(f"{axis} {short(value)}" for axis, value in row.outcome.plan.axes.items())
    return f"{row.fleet}, {at}" if at else row.fleet


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """Headline and findings of a job's or queue's report."""

    headline: str
    findings: tuple[str, ...]


def verdict(rows: Sequence[JobRow]) -> JobVerdict:
    """Return the verdict over all *rows*.

    The headline names the fastest and the cheapest fleet. Findings describe each fleet at its fastest point, its speed
    relative to the first fleet, and the fleets that cannot run the job.
    """
    feasible = [row for row in rows if row.ok]
    if not feasible:
        return JobVerdict(_("The job cannot be done on any fleet."), tuple(_infeasible_findings(rows)))
    fastest = min(feasible, key=lambda row: float(row.cells["makespan_h"]))
    headline = _(
        "{name} is done first, after {duration}{price}.",
        name=name(fastest),
        duration=duration(fastest.cells["makespan_h"]),
        price=_price(fastest),
    )
    if len(feasible) == 1:
        headline = _(
            "{name} is done after {duration}{price}.",
            name=name(fastest),
            duration=duration(fastest.cells["makespan_h"]),
            price=_price(fastest),
        )
    priced = [row for row in feasible if row.cells.get("cost_usd") is not None]
    if len(feasible) > 1 and priced:
        cheapest = min(priced, key=lambda row: float(row.cells["cost_usd"]))
        if cheapest is fastest:
            headline = headline[:-1] + _(", and costs least.")
        else:
            after = duration(cheapest.cells["makespan_h"])
            headline += _(
                " {name} costs least: {cash}, after {after}.",
                name=name(cheapest),
                cash=cash(cheapest.cells["cost_usd"]),
                after=after,
            )
    best = {row.fleet: row for row in sorted(feasible, key=lambda row: -float(row.cells["makespan_h"]))}
    fleets = list(dict.fromkeys(row.fleet for row in feasible))
    findings = [*(_finding(best[fleet]) for fleet in fleets), *_ratios(feasible, fleets)]
    return JobVerdict(headline, (*findings, *_infeasible_findings(rows)))


def name(row: JobRow) -> str:
    """Return the fleet with its point of the sweep."""
    at = places(tuple(row.outcome.plan.axes.items()))
    return _("{fleet} at {at}", fleet=row.fleet, at=at) if at else row.fleet


def duration(hours: float) -> str:
    """Format a time span in a readable unit.

    >>> duration(0.02), duration(30.0), duration(900.0)
    ('72 s', '30 hours', '37.5 days')
    """
    if hours >= 3 * HOURS_PER_DAY:
        return _("{hours} days", hours=plain(hours / HOURS_PER_DAY))
    if hours >= 2:
        return _("{hours} hours", hours=plain(hours))
    seconds = hours * SECONDS_PER_HOUR
    return _("{seconds} minutes", seconds=plain(seconds / 60)) if seconds >= 120 else f"{plain(seconds)} s"


def _price(row: JobRow) -> str:
    usd = row.cells.get("cost_usd")
    return _(" for {cash}", cash=cash(usd)) if usd is not None else ""


def _finding(row: JobRow) -> str:
    cells, plan = row.cells, row.outcome.plan
    unit = _("tokens") if plan.run.counts_tokens else _("samples")
    speed = cells["tokens_per_s"] if plan.run.counts_tokens else cells["samples_per_s"]
    sentence = _(
        "{name}: {speed} {unit}/s, {percent} of the peak; steps are limited by {limit}.",
        name=name(row),
        speed=plain(speed),
        unit=unit,
        percent=percent(cells["mfu"]),
        limit=_(str(cells["limited_by"])),
    )
    wasted = (cells["lost_h"] + cells["restarting_h"] + cells["saving_h"]) / cells["makespan_h"]
    if cells["failures"]:
        failures = plain(cells["failures"], 2)
        sentence += _(
            " {failures} failures are expected; they and the saves take {percent} of the time.",
            failures=failures,
            percent=percent(wasted),
        )
    return sentence


def _ratios(rows: Sequence[JobRow], fleets: Sequence[str]) -> list[str]:
    """Return sentences on the speed of each fleet relative to the first, over the sweep points of both."""
    places = [{repr(row.outcome.plan.axes): row for row in rows if row.fleet == fleet} for fleet in fleets]
    found = []
    for fleet, mine in zip(fleets[1:], places[1:], strict=True):
        ratios = [_hours(places[0][at]) / _hours(row) for at, row in mine.items() if at in places[0]]
        if ratios:
            times = ranged(plain(min(ratios)), plain(max(ratios)))
            found.append(_("{fleet} is {times} times as fast as {first}.", fleet=fleet, times=times, first=fleets[0]))
    return found


def _hours(row: JobRow) -> float:
    return float(row.cells["makespan_h"])


def _infeasible_findings(rows: Sequence[JobRow]) -> list[str]:
    """Return a sentence for each fleet and reason why it cannot run, with all affected sweep points."""
    reasons: dict[tuple[str, str], list[JobRow]] = {}
    for row in rows:
        if not row.ok:
            reasons.setdefault((row.fleet, row.outcome.plan.infeasible), []).append(row)
    return [
        _("{fleet} cannot run{at}: {reason}.", fleet=fleet, at=_at_points(members), reason=translate_rendered(reason))
        for (fleet, reason), members in reasons.items()
    ]


def _at_points(members: Sequence[JobRow]) -> str:
    found = [places(tuple(row.outcome.plan.axes.items())) for row in members]
    return _(" at {listing}", listing=listing(found)) if any(found) else ""


class _ChartAxis(NamedTuple):
    """Horizontal axis of the charts."""

    label: str
    place: Callable[[JobRow], float]
    ticks: tuple[float, ...] = ()
    names: tuple[str, ...] = ()


def panels(rows: Sequence[JobRow]) -> list[Panel]:
    """Return the charts of time and, with costs, of cost; none if no fleet can run the job."""
    feasible = [row for row in rows if row.ok]
    if not feasible:
        return []
    across, days = _across(feasible), max(row.cells["makespan_h"] for row in feasible) >= 3 * HOURS_PER_DAY
    hours = HOURS_PER_DAY if days else 1.0
    unit = _("days") if days else _("hours")
    found = [
        _panel(_("Time"), _("{unit} from the first step to the last, failures included", unit=unit),
               feasible, across, "time",
               lambda row: row.cells["makespan_h"] / hours, plain)
    ]  # fmt: skip
    priced = [row for row in feasible if row.cells.get("cost_usd") is not None]
    if priced:
        cost = in_code(_("USD for the whole job"))
        found.append(
            _panel(_("Cost"), cost, priced, across, "cost", lambda row: shown(row.cells["cost_usd"]), money_mark)
        )
    return found


def key(rows: Sequence[JobRow]) -> list[KeyEntry]:
    """Return colour and marker of every fleet."""
    looks = style(list(dict.fromkeys(row.fleet for row in rows)))
    return [KeyEntry(name, *look) for name, look in looks.items()]


def _across(rows: Sequence[JobRow]) -> _ChartAxis:
    fleets = list(dict.fromkeys(row.fleet for row in rows))
    by_fleet = [{row.cells["gpus"] for row in rows if row.fleet == fleet} for fleet in fleets]
    if any(len(one) > 1 for one in by_fleet):
        return _ChartAxis("GPUs", lambda row: float(row.cells["gpus"]))
    axes: Mapping[str, Any] = rows[0].outcome.plan.axes
    for axis in axes:
        values = [row.outcome.plan.axes[axis] for row in rows]
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        if numbers and len(set(values)) > 1:
            return _ChartAxis(axis_label(axis), lambda row, axis=axis: float(row.outcome.plan.axes[axis]))  # type: ignore[misc]
    ticks = tuple(float(i) for i in range(len(fleets)))
    return _ChartAxis("", lambda row: float(fleets.index(row.fleet)), ticks, tuple(fleets))


def _panel(
    title: str,
    subtitle: str,
    rows: Sequence[JobRow],
    across: _ChartAxis,
    kind: str,
    y: Callable[[JobRow], float],
    y_format: Callable[[float], str],
) -> Panel:
    looks = style(list(dict.fromkeys(row.fleet for row in rows)))
    curves = []
    for fleet, (color, marker) in looks.items():
        mine = sorted((row for row in rows if row.fleet == fleet), key=across.place)
        curves.append(
            ChartCurve(
                fleet,
                color,
                tuple(map(across.place, mine)),
                tuple(map(y, mine)),
                marker,
                good=(True,) * len(mine),
            )
        )
    return Panel(
        title,
        subtitle,
        across.label,
        tuple(curves),
        y_format=y_format,
        x_ticks=across.ticks,
        x_names=across.names,
        x_anchored=False,
        kind=kind,
    )


def job_overview(rows: Sequence[JobRow], plans: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    """Yield what `gpufleet check` prints for *rows*, which *plans* describe."""
    for note in notes(plans):
        yield Sentence(_("Note: {note}", note=note))
    for table in (layout_table(rows), memory_table(rows)):
        yield Text(f"\n{table.title}", style="bold")
        yield text_table(table)
    for row in rows:
        if not row.ok:
            yield Sentence(
                _(
                    "{fleet} cannot run: {infeasible}",
                    fleet=row.fleet,
                    infeasible=translate_rendered(row.outcome.plan.infeasible),
                )
            )
    yield from values_and_sources(plans)
