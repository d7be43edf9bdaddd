"""Answer of a round of `gpufleet watch`: as a record, as sentences and tables, as a page, and as metrics."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import isfinite
from statistics import median
from typing import Any

import numpy as np

from sim.language import N_, _, ngettext, translate_message
from sim.report.charts.panels import COLORS, DASHES, ChartCurve, Limit, Panel
from sim.report.page.page import PageTable, render_page, text_table
from sim.report.terminal_table import FittedTable
from sim.report.words.money import cash, heading_mark
from sim.report.words.text import difference, plain, seconds, spread
from sim.units import HOURS_PER_DAY
from sim.watch.drift import REFERENCE, Alarm, DriftState
from sim.watch.forecast import LEAST_DAYS, LoadForecast
from sim.watch.observed import HOUR_S, HourObserved
from sim.watch.orders import DAY_S, CapacityOutlook
from sim.watch.storage import StoredCalibration

METRICS: dict[str, tuple[str, Callable[[float], str]]] = {
    "ttft_s_mean": (N_("TTFT mean"), seconds),
    "ttft_s_p95": (N_("TTFT p95"), seconds),
    "tpot_s_mean": (N_("time per output token"), seconds),
    "e2e_s_mean": (N_("time to last token"), seconds),
    "output_tokens_per_s": (N_("output tokens/s"), plain),
    "gpu_power_w_mean": (N_("GPU power [W]"), plain),
    "usd_per_million_output_tokens": (N_("USD per million output tokens"), cash),
}
"""Compared metrics: column -> (name, format)."""


@dataclass(frozen=True, slots=True)
class ComparedHour:
    """Observed hour with the prediction for its load."""

    hour: HourObserved
    predicted: Mapping[str, float | None]
    usd_per_h: float | None
    """Cost of the hour at the measured power [USD/h]."""
    usd: float | None
    """Cost per million observed output tokens [USD]."""
    enough: bool
    """True if the hour has enough requests to be compared."""

    def observed(self, name: str) -> float | None:
        """Return an observed value by its column."""
        return self.usd if name == "usd_per_million_output_tokens" else getattr(self.hour, name)

    def ratio(self, name: str) -> float | None:
        """Return observed over predicted; None where one is not known or the hour has too few requests."""
        seen, predicted = self.observed(name), self.predicted.get(name)
        return seen / predicted if self.enough and seen and predicted else None


@dataclass(frozen=True, slots=True)
class WatchAnswer:
    """Answer after the hours that are stored."""

    name: str
    fleet: str
    replicas: int
    gpus: tuple[float, float, float | None]
    """GPUs, capital cost [USD] and cost per hour [USD/h] of one replica; None without prices."""
    hours: tuple[HourObserved, ...]
    compared: tuple[ComparedHour, ...]
    """Usable hours."""
    drift: tuple[DriftState, ...]
    """State of each metric since the last calibration."""
    alarms: tuple[Alarm, ...]
    """All alarms."""
    calibrations: tuple[StoredCalibration, ...]
    forecast: LoadForecast | None
    """Forecast of the rate; None where the history is too short."""
    outlook: CapacityOutlook | None
    """Dates at which the load reaches the capacity, and the order; None without a forecast or a capacity."""
    notes: tuple[str, ...]

    @property
    def end(self) -> int:
        """End of the last stored hour [Unix s]."""
        return self.hours[-1].hour + HOUR_S if self.hours else 0

    @property
    def order_date(self) -> str | None:
        """Day of the order; None where none is needed or known."""
        due = self.outlook.order_by if self.outlook is not None else None
        return None if due is None else day(due)


def moment(at: int) -> str:
    """Return a time as text in UTC, to the minute."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def day(at: int) -> str:
    """Return the day of a time in UTC."""
    return moment(at)[:10]


def verdict(answer: WatchAnswer) -> str:
    """Return the sentence on capacity and order."""
    outlook, fleet = answer.outlook, answer.fleet
    if answer.forecast is None:
        count = sum(one.usable and one.requests > 0 for one in answer.hours)
        return _(
            "{fleet}: no forecast yet: {count} hours with requests are known, and it needs {least} ({days} days).",
            fleet=fleet, count=count, least=LEAST_DAYS * HOURS_PER_DAY, days=LEAST_DAYS,
        )  # fmt: skip
    if outlook is None:
        return _("{fleet}: no capacity within the SLO is known, so no order date.", fleet=fleet)
    capacity = plain(outlook.capacity_rps)
    if outlook.early is None:
        return _(
            "{fleet} suffices: its capacity of {capacity} req/s within the SLO is not reached in the next {days:.0f} "
            "days.",
            fleet=fleet, capacity=capacity, days=len(answer.forecast.starts) / HOURS_PER_DAY,
        )  # fmt: skip
    order = _order(answer, outlook)
    if outlook.busiest_rps > outlook.capacity_rps and outlook.early <= answer.end + 7 * DAY_S:
        return _(
            "{fleet} is beyond its capacity of {capacity} req/s within the SLO in its busiest hours ({busiest} req/s): "
            "order {order} now.",
            fleet=fleet, capacity=capacity, busiest=plain(outlook.busiest_rps), order=order,
        )  # fmt: skip
    due = _("by {date}", date=day(outlook.order_by or 0))
    if (outlook.order_by or 0) < answer.end:
        due = _("now (due {date})", date=day(outlook.order_by or 0))
    if outlook.middle is None:
        return _(
            "{fleet} may reach its capacity of {capacity} req/s within the SLO from {early} on: order {order} {due}.",
            fleet=fleet, capacity=capacity, early=day(outlook.early), order=order, due=due,
        )  # fmt: skip
    return _(
        "{fleet} reaches its capacity of {capacity} req/s within the SLO on {middle}, and with a chance of 10 % by "
        "{early}: order {order} {due}, or by {later} to arrive on {middle}.",
        fleet=fleet, capacity=capacity, middle=day(outlook.middle), early=day(outlook.early), order=order, due=due,
        later=day(outlook.order_by_median or 0),
    )  # fmt: skip


def _order(answer: WatchAnswer, outlook: CapacityOutlook) -> str:
    gpus = round(outlook.replicas * answer.gpus[0])
    text = ngettext("{count} replica", "{count} replicas", outlook.replicas, count=outlook.replicas)
    if not gpus:
        return text
    return _("{replicas} ({gpus})", replicas=text, gpus=ngettext("{count} GPU", "{count} GPUs", gpus, count=gpus))


def drift_sentence(answer: WatchAnswer) -> str:
    """Return the sentence on drift since the last calibration."""
    alarms = [one.alarm for one in answer.drift if one.alarm is not None]
    if alarms:
        return _("Drift: {changes}.", changes="; ".join(map(_change, alarms)))
    ready = [one for one in answer.drift if one.reference is not None]
    if not ready:
        most = max((one.hours for one in answer.drift), default=0)
        return _("Drift is not judged yet: {hours} of {least} compared hours.", hours=most, least=REFERENCE)
    texts = [
        _("{metric} {ratio} x predicted", metric=_(METRICS[one.metric][0]), ratio=plain(one.reference or 0.0))
        for one in ready
    ]
    return _("No drift: {ratios}, steady.", ratios=", ".join(texts))


def _change(alarm: Alarm) -> str:
    text = N_("{metric} rose by {change} against the prediction at {since} UTC (alarm {raised})")
    if alarm.ratio < 1:
        text = N_("{metric} fell by {change} against the prediction at {since} UTC (alarm {raised})")
    return _(
        text,
        metric=_(METRICS[alarm.metric][0]),
        change=difference(abs(alarm.ratio - 1)),
        since=moment(alarm.since),
        raised=moment(alarm.raised + HOUR_S),
    )


def comparison_table(answer: WatchAnswer) -> PageTable:
    """Return observed and predicted values of the last hour and of the last day."""
    last = answer.compared[-1:]
    recent = [one for one in answer.compared if one.hour.hour >= answer.end - DAY_S]
    rows = []
    for name, (words, form) in METRICS.items():
        cells = [_(words).replace("USD", heading_mark())]
        for chosen in (last, recent):
            pairs = [(one.observed(name), one.predicted.get(name)) for one in chosen if one.enough]
            known = [(seen, said) for seen, said in pairs if seen is not None and said]
            if not known:
                seen_only = [seen for seen, _said in pairs if seen is not None]
                cells += [form(median(seen_only)) if seen_only else "", "", ""]
            else:
                seen, said = median(one for one, _said in known), median(one for _seen, one in known)
                change = median(one / other for one, other in known) - 1
                cells += [form(seen), form(said), _signed(change)]
        if any(cells[1:]):
            rows.append(cells)
    heads = [_("metric"), _("last hour"), _("predicted"), _("error"), _("last day"), _("predicted"), _("error")]
    return PageTable(
        _("Observed and predicted"),
        _("error: observed over predicted minus 1; prediction: the scenario at the load of each hour"),
        heads,
        rows,
    )


def findings(answer: WatchAnswer) -> Iterator[str]:
    """Yield the sentences below the verdict."""
    yield drift_sentence(answer)
    for one in answer.calibrations:
        if one.text:
            yield _("Recalibrated to the hours since {since}.", since=moment(one.since))
        else:
            reason = translate_message(one.note)
            yield _("Not recalibrated to the hours since {since}: {reason}.", since=moment(one.since), reason=reason)
    done = [one for one in answer.alarms if one not in [state.alarm for state in answer.drift]]
    for alarm in done:
        yield _("Alarm before: {change}.", change=_change(alarm))
    forecast, outlook = answer.forecast, answer.outlook
    if forecast is not None:
        low, high = forecast.growth_interval
        yield _(
            "Load trend {growth} a week (80 %: {low} to {high}); busiest hour of the next week {median} req/s "
            "(80 %: {under} to {over}).",
            growth=_signed(forecast.growth_per_week), low=_signed(low), high=_signed(high),
            **_busiest(forecast),
        )  # fmt: skip
        if forecast.held is not None and forecast.error is not None:
            yield _(
                "Backtest: 80 % intervals held {held} of {count} hours; median error {error}.",
                held=difference(forecast.held), count=forecast.backtested, error=difference(forecast.error),
            )  # fmt: skip
        if forecast.trend_errors is not None:
            template = N_("Trend: exponential; its backtest has an error of {own}, a linear one's {other}.")
            if forecast.linear:
                template = N_("Trend: linear; its backtest has an error of {own}, an exponential one's {other}.")
            errors = forecast.trend_errors
            yield _(template, own=difference(errors[forecast.linear]), other=difference(errors[not forecast.linear]))
    if outlook is not None:
        half = spread(outlook.half_width_rps or 0.0, outlook.capacity_rps)
        yield _(
            "Capacity {capacity} req/s; busiest hour of the last week {busiest} req/s; lead time {lead} days.",
            capacity=plain(outlook.capacity_rps) + (f" ± {half}" if half else ""), busiest=plain(outlook.busiest_rps),
            lead=plain(outlook.lead_time_days),
        )  # fmt: skip
    if outlook is not None and outlook.replicas and outlook.covered_until is not None:
        _gpus, capex, usd_per_h = answer.gpus
        price = (
            _("no prices in the scenario")
            if usd_per_h is None
            else _("{cost} an hour", cost=cash(outlook.replicas * usd_per_h))
        )
        if capex:
            price = _("{capex} at once, in all {hourly}", capex=cash(outlook.replicas * capex), hourly=price)
        yield _(
            "The order covers the median forecast until {until}: {price}.",
            until=day(outlook.covered_until),
            price=price,
        )
    yield from map(translate_message, answer.notes)


def _signed(change: float) -> str:
    return ("+" if change > 0 else "") + difference(change)


def _busiest(forecast: LoadForecast) -> dict[str, str]:
    week = slice(0, 7 * HOURS_PER_DAY)
    place = int(np.argmax(forecast.median[week]))
    return {
        "median": plain(float(forecast.median[place])),
        "under": plain(float(forecast.low[place])),
        "over": plain(float(forecast.high[place])),
    }


def lines(answer: WatchAnswer) -> list[str | FittedTable]:
    """Return the answer for the terminal: verdict, table, findings."""
    table = comparison_table(answer)
    shown: list[str | FittedTable] = [text_table(table), ""] if table.rows else []
    when = _("Hours until {end} UTC.", end=moment(answer.end)) if answer.hours else ""
    return [verdict(answer), "", *shown, *findings(answer), when]


def documents(answer: WatchAnswer, since: int = 0) -> list[dict[str, Any]]:
    """Return plain data for each stored hour from *since* on [Unix s], and at least for the last one.

    `observed`, `predicted` and the `ratio` of each metric's `drift` are those of the hour, None where it has too few
    samples. All else is the same in all of them: the state after the last stored hour.
    """
    found, known = _document(answer), {one.hour.hour: one for one in answer.compared}
    chosen = [one.hour for one in answer.hours if one.hour >= since] or [one.hour for one in answer.hours[-1:]]
    return [found | _of_hour(answer, at, known.get(at)) for at in chosen] or [found]


def _of_hour(answer: WatchAnswer, at: int, one: ComparedHour | None) -> dict[str, Any]:
    return {
        "hour": moment(at) + "Z",
        "observed": None if one is None else _observed(one),
        "predicted": None if one is None else dict(one.predicted),
        "drift": {
            state.metric: {"ratio": None if one is None else one.ratio(state.metric)} | asdict(state)
            for state in answer.drift
        },
    }


def _document(answer: WatchAnswer) -> dict[str, Any]:
    """Return plain data of the state after the last stored hour, with the values of an hour left at None."""
    forecast, outlook = answer.forecast, answer.outlook
    found: dict[str, Any] = {
        "hour": None,
        "scenario": answer.name,
        "fleet": answer.fleet,
        "verdict": verdict(answer),
        "observed": None,
        "predicted": None,
        "drift": {one.metric: {"ratio": None} | asdict(one) for one in answer.drift},
        "alarms": [
            asdict(one) | {"since": moment(one.since) + "Z", "raised": moment(one.raised) + "Z"}
            for one in answer.alarms
        ],
        "forecast": None,
        "capacity": None,
        "order_date": answer.order_date,
        "order": None,
        "notes": list(answer.notes),
    }
    if forecast is not None:
        found["forecast"] = {
            "hours": [moment(one) + "Z" for one in forecast.starts[:HOURS_PER_DAY]],
            **{
                name: [float(one) for one in getattr(forecast, name)[:HOURS_PER_DAY]]
                for name in ("median", "low", "high")
            },
            "growth_per_week": forecast.growth_per_week,
            "growth_interval": list(forecast.growth_interval),
            "trend": "linear" if forecast.linear else "exponential",
            "backtest": {"hours": forecast.backtested, "held": forecast.held, "error": forecast.error},
        }
    if outlook is not None:
        dates = {
            name: None if (at := getattr(outlook, name)) is None else day(at) for name in ("early", "middle", "late")
        }
        found["capacity"] = {"rps": outlook.capacity_rps, "half_width_rps": outlook.half_width_rps, "reached": dates}
        found["order"] = {
            "by": answer.order_date,
            "by_median": None if outlook.order_by_median is None else day(outlook.order_by_median),
            "replicas": outlook.replicas,
            "gpus": outlook.replicas * answer.gpus[0],
            "lead_time_days": outlook.lead_time_days,
            "covered_until": None if outlook.covered_until is None else day(outlook.covered_until),
        }
    return found


def _observed(one: ComparedHour) -> dict[str, Any]:
    found = asdict(one.hour) | {"rate_rps": one.hour.rate_rps, "usd_per_h": one.usd_per_h}
    return found | {"usd_per_million_output_tokens": one.usd}


def json_lines(answer: WatchAnswer, since: int = 0) -> list[str]:
    """Return a line of JSON for each stored hour from *since* on [Unix s], and at least for the last one."""
    return [json.dumps(_finite(one), allow_nan=False, ensure_ascii=False) for one in documents(answer, since)]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


GAUGES = """
observed: Observed value of the last hour.
predicted: Prediction for the load of the last hour.
drift_ratio: Mean of observed over predicted in the reference.
drift_level: Larger cumulative sum over its threshold.
drift_alarm: Whether drift raised an alarm.
rate_rps: Requests per second of the last hour.
forecast_rps: Forecast of the next hour (median and 80 % interval).
capacity_rps: Highest rate within the SLO.
capacity_reached_timestamp_seconds: When the load reaches the capacity.
order_by_timestamp_seconds: When further replicas have to be ordered.
order_replicas: Replicas to order.
last_hour_timestamp_seconds: End of the last hour that was read.
missing_hours: Hours without enough samples.
"""
"""Gauges of /metrics without the prefix `gpufleet_watch_`, and their help."""


def _samples(answer: WatchAnswer) -> Iterator[tuple[str, str, float | None]]:
    """Yield (gauge, labels, value)."""
    for one in answer.compared[-1:]:
        yield "rate_rps", "", one.hour.rate_rps
        for name in METRICS:
            yield "observed", f'{{metric="{name}"}}', one.observed(name)
            yield "predicted", f'{{metric="{name}"}}', one.predicted.get(name)
    for state in answer.drift:
        yield "drift_ratio", f'{{metric="{state.metric}"}}', state.reference
        yield "drift_level", f'{{metric="{state.metric}"}}', state.level
        yield "drift_alarm", f'{{metric="{state.metric}"}}', float(state.alarm is not None)
    if answer.forecast is not None:
        for name in ("median", "low", "high"):
            yield "forecast_rps", f'{{end="{name}"}}', float(getattr(answer.forecast, name)[0])
    if (outlook := answer.outlook) is not None:
        yield "capacity_rps", "", outlook.capacity_rps
        yield "order_by_timestamp_seconds", "", outlook.order_by
        yield "order_replicas", "", float(outlook.replicas)
        for name in ("early", "middle", "late"):
            yield "capacity_reached_timestamp_seconds", f'{{end="{name}"}}', getattr(outlook, name)
    if answer.hours:
        yield "last_hour_timestamp_seconds", "", float(answer.end)
    yield "missing_hours", "", float(sum(not one.usable for one in answer.hours))


def metrics_text(answer: WatchAnswer) -> str:
    """Return the answer in the text exposition format of Prometheus."""
    known: dict[str, list[str]] = {}
    for name, labels, value in _samples(answer):
        if value is not None and isfinite(value):
            known.setdefault(name, []).append(f"gpufleet_watch_{name}{labels} {float(value)!r}")
    found = []
    for name, text in (line.split(": ", 1) for line in GAUGES.strip().splitlines()):
        if name in known:
            series = f"gpufleet_watch_{name}"
            found += [" ".join(("# HELP", series, text)), " ".join(("# TYPE", series, "gauge")), *known[name]]
    return "\n".join(found) + "\n"


SHOWN_DAYS = 28
"""Days before and after the last hour that charts show."""


def page(answer: WatchAnswer) -> str:
    """Return the page of the answer."""
    table = comparison_table(answer)
    said = [*findings(answer)]
    when = _("Hours until {end} UTC.", end=moment(answer.end)) if answer.hours else ""
    return render_page(
        _("{name}: watched fleet", name=answer.name),
        _("When is {fleet} too small, and is it as fast as predicted?", fleet=answer.fleet),
        [verdict(answer), *said],
        list(_panels(answer)),
        [table] if table.rows else [],
        [when],
    )


def _panels(answer: WatchAnswer) -> Iterator[Panel]:
    shown = [one for one in answer.compared if one.hour.hour >= answer.end - SHOWN_DAYS * DAY_S]
    if not shown:
        return
    rates = [(one.hour.hour, one.hour.rate_rps) for one in shown]
    curves = [_curve(_("observed"), COLORS[0], rates)]
    limit = None
    if answer.forecast is not None:
        kept = slice(0, SHOWN_DAYS * HOURS_PER_DAY)
        pairs = [*zip(answer.forecast.starts[kept], answer.forecast.median[kept].tolist(), strict=True)]
        ends = tuple(zip(answer.forecast.low[kept].tolist(), answer.forecast.high[kept].tolist(), strict=True))
        curves.append(_curve(_("forecast"), COLORS[1], pairs, ends))
    if answer.outlook is not None:
        limit = Limit(answer.outlook.capacity_rps, _("capacity {rps}", rps=plain(answer.outlook.capacity_rps)))
    yield _panel(_("Load [requests/s]"), _("band: 80 % interval of the forecast"), curves, limit)
    for name in ("ttft_s_mean", "tpot_s_mean", "gpu_power_w_mean", "usd_per_million_output_tokens"):
        words = _(METRICS[name][0]).replace("USD", heading_mark())
        unit = " [s]" if name.endswith("_s_mean") else ""
        seen = [(one.hour.hour, value) for one in shown if (value := one.observed(name)) is not None]
        said = [(one.hour.hour, value) for one in shown if (value := one.predicted.get(name)) is not None]
        if seen and said:
            curves = [_curve(_("observed"), COLORS[0], seen), _curve(_("predicted"), COLORS[1], said, dash="dashed")]
            yield _panel(f"{words}{unit}", _("each hour"), curves)


def _curve(
    name: str,
    color: str,
    pairs: Sequence[tuple[int, float]],
    ends: Sequence[tuple[float, float]] = (),
    dash: str = "solid",
) -> ChartCurve:
    x, y = zip(*pairs, strict=True)
    return ChartCurve(name, color, tuple(at / DAY_S for at in x), tuple(y), dash=DASHES[dash], ends=tuple(ends))


def _panel(title: str, subtitle: str, curves: Sequence[ChartCurve], limit: Limit | None = None) -> Panel:
    first, last = (end(x for curve in curves for x in curve.x) for end in (min, max))
    step = 7.0 if last - first > 10 else 1.0
    ticks = tuple(float(x) for x in np.arange(np.ceil(first), last, step))
    return Panel(
        title,
        subtitle,
        _("day (UTC)"),
        tuple(curves),
        x_format=lambda x: moment(round(x * DAY_S)),
        y_limit=limit,
        x_ticks=ticks,
        x_names=tuple(day(round(x * DAY_S))[5:] for x in ticks),
        x_anchored=False,
        x_linear=True,
        y_linear=True,
    )
