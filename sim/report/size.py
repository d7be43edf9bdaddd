"""Report of `gpufleet size`: verdict, charts, CSV files and page on the cheapest fleet that meets the service level.

Charts show the cost of simulated candidates against what they attain, and every candidate by its cost.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from sim.cost.buying import Buy
from sim.cost.rental import Rent
from sim.language import ENGLISH, N_, _, ngettext, speaking
from sim.report.charts.fonts import drawable
from sim.report.charts.panels import ChartCurve, Limit, Panel, style
from sim.report.charts.picture import SOFT, KeyEntry, panel_picture
from sim.report.json_document import heading
from sim.report.page.page import render_page
from sim.report.run.tables import write_rows
from sim.report.size_candidates import (
    budget_needs,
    compared,
    details,
    front_table,
    least_serving,
    losers,
    money,
    named,
    nearest_sentences,
    spares_cells,
    spares_table,
    why,
    winners,
    within,
)
from sim.report.words.money import cash, in_code, money_mark, rate_notes, shown
from sim.report.words.service_level import (
    doubt_texts,
    exactly,
    latency_columns,
    percentiles_shown,
    routing_text,
    share_beside,
    unanswered_of,
)
from sim.report.words.text import joined, listing, percent, place, plain, question_of
from sim.report.words.units import verdict_in_units
from sim.routing import ByLength
from sim.scenario.reading.layers import place_of, put
from sim.scenario.schema import SECTIONS, Fleet, Scenario
from sim.scenario.sections.sensitivity import ALL_LOADS
from sim.scenario.sections.size import CostCeiling
from sim.scenario.sweep import as_data
from sim.scenario.year import at_peak, year_plan
from sim.study.load_axis import LoadAxis
from sim.study.metrics.statistics import LEAST_FOR_INTERVAL
from sim.study.size.candidates import CandidateFleet, Sizing, front
from sim.study.size.trials import OVER_FAILURES, SCREEN_MARGIN, with_failures
from sim.units import HOURS_PER_MONTH
from sim.yamlio import dump

NO_LINE = "None"
FAR = 2.5
"""Multiple of a latency limit above which candidates are left out of the chart."""
LATENCIES = {"ttft_s": (N_("time to first token"), 1.0, "s"), "tpot_s": (N_("time per output token"), 1e3, "ms")}


def panels(found: Sizing, scenario: Scenario) -> list[Panel]:
    """Return the charts of simulated candidates, and a chart of all candidates that could serve."""
    shown = [(name, *one) for name in LATENCIES for one in percentiles_shown(scenario.slo, name).items()]
    late = [_late(found, scenario)] if scenario.slo.per_request else []
    drawn = [*(_latency_panel(found, *one) for one in shown), *late]
    return [*(one for one in drawn if one.curves), *([_by_cost(found)] if _priced_candidates(found) else [])]


def key(found: Sizing) -> list[KeyEntry]:
    """Return the legend: colour and marker of every GPU type and mix."""
    return [KeyEntry(gpu, color, marker) for gpu, (color, marker) in _looks(found).items()]


def _looks(found: Sizing) -> dict[str, tuple[str, str]]:
    return style(sorted({one.gpu for one in _priced_candidates(found)}))


def _priced_candidates(found: Sizing) -> list[CandidateFleet]:
    return [one for one in found.candidates if one.status != "impossible" and one.floor_usd_per_h]


def _per_month(one: CandidateFleet) -> float:
    cost = one.usd_per_h if one.usd_per_h is not None else one.floor_usd_per_h
    return shown((cost or 0.0) * HOURS_PER_MONTH)


def _curves(
    found: Sizing,
    chosen: list[CandidateFleet],
    x: Callable[[CandidateFleet], float],
    tag: Callable[[CandidateFleet], str],
) -> tuple[ChartCurve, ...]:
    """Return a set of points per GPU type, filled where the service level is met."""
    curves = []
    for gpu, (color, marker) in _looks(found).items():
        members = [one for one in chosen if one.gpu == gpu]
        if members:
            good = tuple(one.status == "meets" for one in members)
            xs, ys = tuple(map(x, members)), tuple(map(_per_month, members))
            names = tuple(one.name for one in members)
            tags = tuple(map(tag, members))
            curves.append(
                ChartCurve("", color, xs, ys, marker, NO_LINE, good=good, tags=tags, fleet=gpu, keys=names, names=names)
            )
    return tuple(curves)


def _latency_panel(found: Sizing, name: str, part: str, limit: float | None) -> Panel:
    words, scale, unit = _(LATENCIES[name][0]), *LATENCIES[name][1:]
    column = f"{name}_{part}"

    def latency(one: CandidateFleet) -> float:
        value = (one.metrics or {}).get(column)
        return float("inf") if value is None else scale * value

    far = FAR * scale * limit if limit is not None else float("inf")
    chosen = [one for one in _priced_candidates(found) if one.metrics is not None and latency(one) <= far]
    members = front(found, [column])
    names = {id(one): one.name for one in members}

    def on_front(one: CandidateFleet) -> str:
        return names.get(id(one), "")

    x, y, called = tuple(map(latency, members)), tuple(map(_per_month, members)), tuple(one.name for one in members)
    line = ChartCurve("", SOFT, x, y, fleet=_("the front"), keys=called, names=called)
    return Panel(
        _("Cost against {words}", words=words),
        in_code(_("USD a month; filled: meets the SLO, hollow: misses it (least cost); line: the front")),
        f"{part} {words} [{unit}]",
        (*([line] if len(members) > 1 else []), *_curves(found, chosen, latency, on_front)),
        y_format=money_mark,
        x_limit=Limit(scale * limit, f"SLO {plain(scale * limit)} {unit}") if limit is not None else None,
        kind="cost_vs_latency",
    )


def _late(found: Sizing, scenario: Scenario) -> Panel:
    """Build the chart of cost against late requests, which includes candidates too slow for the other charts."""

    def late(one: CandidateFleet) -> float:
        return 1.0 - ((one.metrics or {}).get("slo_attainment") or 0.0)

    allowed = round(1.0 - scenario.slo.attainment, 9)
    return Panel(
        _("Cost against late requests"),
        in_code(_("USD a month; filled: meets the SLO, hollow: misses it (least cost)")),
        _("share of the requests out of the service level"),
        _curves(found, [one for one in _priced_candidates(found) if one.metrics is not None], late, lambda one: ""),
        x_format=percent,
        y_format=money_mark,
        x_limit=Limit(allowed, _("{exactly} allowed", exactly=exactly(allowed))),
        x_ticks=(0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 1.0),
        kind="cost_vs_attainment",
    )


def _by_cost(found: Sizing) -> Panel:
    ranked = sorted(_priced_candidates(found), key=_per_month)
    places = {id(one): float(place) for place, one in enumerate(ranked, start=1)}
    return Panel(
        _("Every candidate by its cost"),
        in_code(_("USD a month; hollow: least cost (misses the SLO or was not simulated)")),
        _("rank by cost"),
        _curves(found, ranked, lambda one: places[id(one)], lambda one: ""),
        y_format=money_mark,
        kind="cost",
    )


NOT_THE_WINNERS = ("question", "sweep", *(name for name, section in SECTIONS.items() if section.of_fleets))
"""Sections that do not apply to a scenario with the winner alone: they ask about other fleets or loads."""
MOST_ROWS = 10
"""Largest number of rows of the ranking in the terminal; size.csv has all candidates."""
MOST_OTHERS = 5
"""Largest number of rows among them of fleets that miss the service level or were not simulated."""


def write_size(
    folder: Path, found: Sizing, scenario: Scenario, remarks: Sequence[str], with_pictures: bool = True
) -> None:
    """Write the tables, the winner's scenario and, if *with_pictures*, picture and page into *folder*."""
    write_rows(folder / "size.csv", size_rows(found, scenario))
    write_rows(
        folder / "pareto.csv", pareto_rows(found, scenario), ["fleet", "usd_per_h", *latency_columns(scenario.slo)]
    )
    if found.winner is not None and found.winner.fleet is not None:
        write_winner(folder / "winner.yaml", found.winner.fleet, scenario, "winner")
    if found.fastest is not None and found.fastest.fleet is not None:
        write_winner(folder / "fastest.yaml", found.fastest.fleet, scenario, "fastest")
    if found.best_within_budget is not None and found.best_within_budget.fleet is not None:
        write_winner(folder / "within_budget.yaml", found.best_within_budget.fleet, scenario, "within-budget")
    if with_pictures:
        _draw(folder, found, scenario, remarks)


def _draw(folder: Path, found: Sizing, scenario: Scenario, remarks: Sequence[str]) -> None:
    lines, drawn = sentences(found, scenario), panels(found, scenario)
    question = question_of(scenario)
    tables = [
        winners(found, scenario),
        spares_table(found, scenario),
        front_table(found, scenario),
        *losers(found, scenario),
    ]
    shown = [one for one in tables if one.rows]
    with drawable():
        answers = sentences(found, scenario)[:1]
        panel_picture(panels(found, scenario), question, answers, key(found)).save(folder / "size.png")
    page = render_page(
        scenario.name,
        question,
        lines,
        drawn,
        shown,
        [*remarks, *_notes(scenario)],
        key=key(found),
        details=details(found, scenario),
    )
    (folder / "size.html").write_text(page, encoding="utf-8")


def write_winner(
    path: Path, fleet: Fleet, scenario: Scenario, what: str, overrides: Mapping[str, float] | None = None
) -> None:
    """Write the scenario with *fleet* alone for `gpufleet run`; with a load profile, it sweeps the profile's loads.

    *overrides* replace values of the scenario, keyed by path.
    """
    data = {name: value for name, value in as_data(scenario).items() if name not in NOT_THE_WINNERS}
    data["name"] = f"{scenario.name}-{what}"
    fails = fleet if scenario.size is None else with_failures(fleet, scenario.size)
    data["fleets"] = [fails.model_dump(mode="json", exclude_unset=True)]
    if (plan := year_plan(scenario)) is not None:
        data["sweep"] = {LoadAxis.of(scenario).path: plan.simulated}
    for key, value in (overrides or {}).items():
        put(data, place_of(data, key), value)
    path.write_text(dump(data), encoding="utf-8")


def sentences(found: Sizing, scenario: Scenario) -> list[str]:
    """Return the verdict, then the conditions under which it was found."""
    return [named(line) for line in _sentences(found, scenario)]


def _sentences(found: Sizing, scenario: Scenario) -> list[str]:
    at = _load(scenario)
    counts = {status: sum(one.status == status for one in found.candidates) for status in ("meets", "misses")}
    left = sum(one.status == "not simulated" for one in found.candidates)
    refused = sum(one.status == "impossible" for one in found.candidates)
    simulated = sum(one.metrics is not None for one in found.candidates)
    over = sum(one.status == "over budget" for one in found.candidates)
    how = ngettext(
        "{count} of {total} fleets was simulated and {met} met the service level",
        "{count} of {total} fleets were simulated and {met} met the service level",
        simulated,
        total=len(found.candidates),
        met=counts["meets"],
    )
    others = [
        ngettext("the least cost of {count} is already higher", "the least cost of {count} is already higher", left)
        if left
        else "",
        ngettext("{count} exceeds the budget", "{count} exceed the budget", over) if over else "",
        ngettext("{count} cannot serve or has no price", "{count} cannot serve or have no price", refused)
        if refused
        else "",
    ]
    how = _("; ").join(filter(None, [how, *others]))
    how += _(".")
    mixed = [*_mixed_sentences(found), *_not_tried(scenario)]
    if found.winner is None:
        return [
            _("No fleet meets the service level{at}{within}.", at=at, within=within(scenario)),
            *nearest_sentences(found, scenario),
            how,
            *mixed,
        ]
    best = found.winner
    cost = best.usd_per_h or 0.0
    template = N_("{name} is the cheapest fleet that meets the service level{at}{within}")
    if best.inconclusive:
        template = N_(
            "Inconclusive whether {name} meets the service level{at}{within}: it is the cheapest fleet that does in "
            "the mean of its runs"
        )
    first = _(template, name=best.name, at=at, within=within(scenario))
    first += _(": {cash} a month", cash=cash(cost * HOURS_PER_MONTH))
    nearest = found.rival
    if nearest is not None:
        first += _(
            "; the next with other GPUs, {name}, {compared}", name=nearest.name, compared=compared(nearest, cost)
        )
    first += _(".")
    maybe = [one for one in found.candidates if one.status == "meets" and (one.usd_per_h or 0.0) < cost][:1]
    for one in maybe:
        monthly = cash((one.usd_per_h or 0.0) * HOURS_PER_MONTH)
        also = _("Inconclusive whether {name}, {cash} a month, meets it.", name=one.name, cash=monthly)
        first = joined([first, also])
    first = joined([first, unanswered_of({one.name: one.unanswered for one in (best, *maybe)})])
    if scenario.size is not None and scenario.size.cost_ceiling is not None:
        fastest = [_fastest(found, scenario.size.cost_ceiling, at)]
    else:
        fastest = []
    taken = [_("It needs {asked}.", asked=budget_needs(best))] if within(scenario) else []
    sure = [line for one in (best, *maybe) for line in _how_sure(one, scenario)]
    return [
        *fastest,
        first,
        *taken,
        *_owned(found, best, scenario),
        *_elastic(found, best),
        *_spares(found, best, scenario),
        *sure,
        how,
        *_against_error(found),
        *mixed,
    ]


def _fastest(found: Sizing, ceiling: CostCeiling, at: str) -> str:
    """Return the sentence on the fleet with the highest output speed per user within the *ceiling* on cost."""
    limits = [] if ceiling.usd_per_h is None else [_("{cash} per hour", cash=cash(ceiling.usd_per_h))]
    if ceiling.usd_per_million_output_tokens is not None:
        limits.append(_("{cash} per million output tokens", cash=cash(ceiling.usd_per_million_output_tokens)))
    under, one = listing(limits), found.fastest
    if one is None:
        return _("No fleet that meets the service level{at} costs at most {under}.", at=at, under=under)
    per_token = one.usd_per_million_output_tokens
    costs = [_("{cash} per hour", cash=cash(one.usd_per_h or 0.0))]
    costs += [] if per_token is None else [_("{cash} per million output tokens", cash=cash(per_token))]
    return _(
        "{name} is the fastest fleet that meets the service level{at} for at most {under}: 95 % of the requests get at "
        "least {speed} output tokens/s per user, for {costs}.",
        name=one.name,
        at=at,
        under=under,
        speed=plain(one.tokens_per_s_per_user or 0.0),
        costs=listing(costs),
    )


def _owned(found: Sizing, best: CandidateFleet, scenario: Scenario) -> Iterator[str]:
    """Yield the number of owned GPUs that the winner uses, the hardware added to them, and their costs."""
    owned = scenario.size.owned if scenario.size is not None else {}
    if not owned or best.fleet is None:
        return
    used, others = _gpus_by_owner(best.fleet)
    shown = _(", ").join(
        _(
            "{used} of {count} {gpu} ({free} stay free)",
            used=used.get(gpu, 0),
            count=count,
            gpu=gpu,
            free=count - used.get(gpu, 0),
        )
        for gpu, count in owned.items()
    )
    yield _("Owned GPUs in use: {shown}.", shown=shown)
    if others:
        more = listing([_(template, count=count, gpu=gpu) for (gpu, template), count in others.items()])
        yield _("The fleet needs beside them: {more}.", more=more) if used else _("The fleet needs: {more}.", more=more)
    else:
        yield _("Nothing else has to be bought or rented.")
    if not used:
        yield from _cheapest_owned(found, best)
    yield _(
        "Owned GPUs in use are charged electricity, and space and upkeep of their part of a server; free GPUs are not "
        "charged: their servers and space cost the same whichever fleet is chosen."
    )
    for fleet in scenario.fleets:
        costs = zip(fleet.pools, fleet.costs, strict=True)
        if rented := [pool.gpu for pool, cost in costs if isinstance(cost, Rent) and pool.gpu in owned]:
            yield _(
                "{fleet} is charged its rent for {gpu}, which size.owned names too: if these are the same GPUs, write "
                "cost: {{acquisition: buy, owned: true}}.",
                fleet=fleet.name,
                gpu=rented[0],
            )


def _gpus_by_owner(fleet: Fleet) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    """Return the owned GPUs of *fleet* by id, and the others by id and template of their purchase option."""
    used: dict[str, int] = {}
    others: dict[tuple[str, str], int] = {}
    for pool, cost in zip(fleet.pools, fleet.costs, strict=True):
        gpus = pool.most_replicas * pool.tensor_parallel_size * pool.pipeline_parallel_size
        gpu = pool.gpu or ""
        if isinstance(cost, Buy) and cost.owned:
            used[gpu] = used.get(gpu, 0) + gpus
        else:
            template = N_("{count} rented {gpu}") if isinstance(cost, Rent) else N_("{count} bought {gpu}")
            others[gpu, template] = others.get((gpu, template), 0) + gpus
    return used, others


def _cheapest_owned(found: Sizing, best: CandidateFleet) -> Iterator[str]:
    """Yield the cheapest fleet with owned GPUs, where the winner has none."""
    able = [one for one in found.candidates if one.status in ("meets", "not simulated") and one.fleet is not None]
    others = [one for one in able if one.fleet is not None and _gpus_by_owner(one.fleet)[0]]
    nearest = min(others, key=lambda one: one.least_usd_per_h or inf, default=None)
    if nearest is not None and best.usd_per_h:
        how = compared(nearest, best.usd_per_h)
        yield _("The cheapest fleet with owned GPUs, {name}, {compared}.", name=nearest.name, compared=how)


def _elastic(found: Sizing, best: CandidateFleet) -> Iterator[str]:
    """Yield how many replicas of an autoscaled winner always run, and the cheapest fleet without an autoscaler."""
    if not best.autoscaled or best.fleet is None:
        return
    (pool,), cost = best.fleet.pools, best.fleet.cost
    assert pool.autoscaling is not None
    base, most = pool.autoscaling.min_replicas, pool.autoscaling.max_replicas
    always = ngettext("{count} replica always runs", "{count} replicas always run", base)
    if isinstance(cost, Rent) and cost.commitment is not None:
        terms = {"gpus": cost.commitment.gpus, "months": f"{cost.commitment.months:g}"}
        always += _(" (committed GPUs: {gpus}, months: {months})", **terms)
    yield _(
        "{always}, and the autoscaler ({policy}) adds up to {more} at this pattern of arrivals.",
        always=always,
        policy=pool.autoscaling.policy,
        more=most - base,
    )
    others = [one for one in found.candidates if not one.autoscaled and one.status in ("meets", "not simulated")]
    steady = min(others, key=lambda one: one.least_usd_per_h or inf, default=None)
    if steady is not None and steady.least_usd_per_h is not None:
        least = _("at least ") if steady.usd_per_h is None else ""
        yield _(
            "Without an autoscaler the cheapest is {name}: {least}{cash} a month.",
            name=steady.name,
            least=least,
            cash=cash(steady.least_usd_per_h * HOURS_PER_MONTH),
        )


def _against_error(found: Sizing) -> Iterator[str]:
    """Yield the share of draws of the prediction error in which the winner stays cheaper than its rival."""
    best, chance = found.winner, found.win_probability
    if best is None or chance is None:
        return
    share = percent(chance.share)
    if chance.at_least:
        yield _(
            "{name} is cheaper than {rival} in at least {share} of draws of the prediction error.",
            name=best.name,
            rival=chance.rival,
            share=share,
        )
    else:
        yield _(
            "{name} is cheaper than {rival} in {share} of draws of the prediction error.",
            name=best.name,
            rival=chance.rival,
            share=share,
        )


def _spares(found: Sizing, best: CandidateFleet, scenario: Scenario) -> Iterator[str]:
    """Yield the number of spare replicas of the winner, and its cost by kind of spares."""
    wanted, share = scenario.slo.availability, (best.metrics or {}).get(OVER_FAILURES)
    if wanted is None or share is None:
        return
    least = least_serving(found, best)
    yield _(
        "Without failures {least} would suffice: this is N+{spare}, and {share} of the requests are within the "
        "service level over failures.",
        least=least,
        spare=best.total - least,
        share=share_beside(share, wanted),
    )
    lines = [f"{kind} {cost}" for kind, _fleet, _spares, cost, _share in spares_table(found, scenario).rows if cost]
    if len(lines) > 1:
        yield _("Cost by kind of spares [USD/month]: {told}.", told=_(", ").join(lines))


def _how_sure(best: CandidateFleet, scenario: Scenario) -> Iterator[str]:
    """Yield a note if chance may have decided that the winner meets the service level."""
    found = best.service_level
    if best.inconclusive and found is not None:
        if not found.inconclusive_goals:
            yield _("The queue of {name} seems to grow; a longer horizon_s shows whether it does.", name=best.name)
            return
        more = _(
            "set replications to {replications} to halve the interval, or a longer horizon_s",
            replications=4 * max(LEAST_FOR_INTERVAL, scenario.replications),
        )
        yield _(
            "The 95 % interval of {name} contains the target: {doubts}; {more}.",
            name=best.name,
            doubts="; ".join(doubt_texts(found)),
            more=more,
        )
        return
    bare = found is None or any(one.attained.interval is None for one in found.goal_results)
    if bare and scenario.replications < LEAST_FOR_INTERVAL and not scenario.workload.deterministic:
        yield _(
            "Fewer than {fewest} replications, so no interval: set replications to 5 or more.",
            fewest=LEAST_FOR_INTERVAL,
        )


def _not_tried(scenario: Scenario) -> Iterator[str]:
    """Yield a note on fleets that a search of mixed fleets does not try: kinds of replicas that share a server."""
    size = scenario.size
    if size is None or size.mixed is None:
        return
    layouts = len(size.tensor_parallel_sizes) * len(size.pipeline_parallel_sizes) * max(1, len(size.quantizations))
    if layouts > 1 and any(cost.acquisition == "buy" for cost in size.costs.values()):
        yield _(
            "Replica kinds that could share a server are costed with servers of their own: the search may miss a "
            "cheaper mix."
        )


def _mixed_sentences(found: Sizing) -> Iterator[str]:
    """Yield the result of the search of mixed fleets, and the routing of the winner if it is a mix."""
    mixed, best = found.mixed, found.winner
    if mixed is None:
        return
    if best is not None and best.fleet is not None and isinstance(best.fleet.routing, ByLength):
        yield _(
            "Routing between its pools: {routing}.",
            routing=routing_text(best.fleet.routing.model_dump(exclude_none=True)),
        )
    simulations = ngettext("{count} simulation", "{count} simulations", len(mixed.trials))
    if not mixed.proved:
        yield _(
            "The search of mixed fleets was cut off after {simulations}: there may be a cheaper mixed fleet.",
            simulations=simulations,
        )
    elif mixed.trials:
        yield (
            _(
                "After {simulations} of mixed fleets the search proposes no cheaper fleet; another division of "
                "lengths among the pools may give one.",
                simulations=simulations,
            )
        )
    else:
        yield _("No mixed fleet could be cheaper by its bounds, so none was simulated.")


def _load(scenario: Scenario) -> str:
    try:
        axis = LoadAxis.of(at_peak(scenario))
    except ValueError:  # a burst has no load axis
        return ""
    if axis.label == ALL_LOADS:  # services have their own loads
        return ""
    text = place(axis.label, float(f"{axis.start:.3g}"))
    if scenario.load_profile is not None:
        return _(" over the year of the load profile, with a peak of {place}", place=text)
    return _(" at {place}", place=text)


def size_rows(found: Sizing, scenario: Scenario) -> list[dict[str, Any]]:
    """Return the rows of size.csv: every candidate, and why it lost, in English."""
    with speaking(ENGLISH):
        return _size_rows(found, scenario)


def _size_rows(found: Sizing, scenario: Scenario) -> list[dict[str, Any]]:
    over = [OVER_FAILURES, f"{OVER_FAILURES}_ci95"] if scenario.slo.availability is not None else []
    columns = dict.fromkeys([*METRIC_COLUMNS, *(one.column for one in scenario.slo.percentiles), *over])
    return [
        {
            "fleet": one.name,
            "status": one.status,
            "slo_verdict": None if one.service_level is None else one.service_level.verdict,
            "why": why(one, found, scenario),
            "gpu": one.gpu,
            "gpus": one.gpus,
            "replicas": one.replicas or None,
            **spares_cells(one, found, scenario),
            "replications": one.replications,
            "usd_per_h": one.usd_per_h,
            "usd_per_month": None if one.usd_per_h is None else one.usd_per_h * HOURS_PER_MONTH,
            "at_least_usd_per_h": one.floor_usd_per_h,
            **money(one),
            **_speed(one, scenario),
            **{name: (one.metrics or {}).get(name) for name in columns},
        }
        for one in found.candidates
    ]


def _speed(one: CandidateFleet, scenario: Scenario) -> dict[str, Any]:
    """Return the columns of size.csv on speed and cost per token; none without a ceiling on cost."""
    if scenario.size is None or scenario.size.cost_ceiling is None:
        return {}
    return {
        "usd_per_million_output_tokens": one.usd_per_million_output_tokens,
        "tokens_per_s_per_user": one.tokens_per_s_per_user,
    }


METRIC_COLUMNS = ("slo_attainment", "ttft_s_p95", "tpot_s_p95", "e2e_s_p95", "gpu_busy_fraction", "batch_mean")


def pareto_rows(found: Sizing, scenario: Scenario) -> list[dict[str, Any]]:
    """Return the rows of pareto.csv: the Pareto front of cost, TTFT and TPOT."""
    names = list(latency_columns(scenario.slo))
    return [
        {"fleet": one.name, "usd_per_h": one.usd_per_h, **{name: (one.metrics or {}).get(name) for name in names}}
        for one in front(found, names)
    ]


def size_document(found: Sizing, scenario: Scenario, out: str) -> dict[str, Any]:
    """Build the document of `--format json`: verdict, winner, and the rows of size.csv and pareto.csv."""
    rows, lines = size_rows(found, scenario), [*sentences(found, scenario), *rate_notes(scenario)]
    return {
        **heading(scenario, out),
        "verdict": verdict_in_units(lines[0], lines[1:]),
        "winner": next((row for one, row in zip(found.candidates, rows, strict=True) if one is found.winner), None),
        **(
            {}
            if scenario.size is None or scenario.size.cost_ceiling is None
            else {
                "fastest": next(
                    (row for one, row in zip(found.candidates, rows, strict=True) if one is found.fastest), None
                )
            }
        ),
        "within_budget": next(
            (row for one, row in zip(found.candidates, rows, strict=True) if one is found.best_within_budget), None
        ),
        "candidates": rows,
        "pareto": pareto_rows(found, scenario),
    }


def _notes(scenario: Scenario) -> list[str]:
    spare = scenario.size.spare_replicas if scenario.size is not None else 0
    notes = [
        _(
            "The least cost of a fleet is the sum of its time-based charges: capital, rent, hosting, idle power. "
            "Fleets whose least cost is far above the winner's cost (front_up_to) are not simulated."
        ),
        _(
            "More replicas of the same kind are assumed to serve at least as well. If the attainment of a fleet's "
            "first replication is {percent} of the requests or more below the target, the fleet is not simulated "
            "further.",
            percent=percent(SCREEN_MARGIN),
        ),
    ]
    if scenario.size is not None and scenario.size.autoscaling is not None:
        notes.append(
            _(
                "The search over max_replicas of an autoscaler stops at the smallest value that meets the service "
                "level; larger values are not simulated. The autoscaler's rent is at least that of its base and of "
                "the replicas that the mean load keeps busy."
            )
        )
    if scenario.services:
        notes.append(
            _("One kind of replica serves all services; latencies in the tables are those of all requests together.")
        )
    if spare:
        notes.append(
            ngettext(
                "{count} spare replica in each pool is paid for beyond those that the service level needs.",
                "{count} spare replicas in each pool are paid for beyond those that the service level needs.",
                spare,
            )
        )
    if scenario.size is not None and scenario.size.mixed is not None:
        notes.append(
            _(
                "Mixed fleets divide prompts by their length. An integer program proposes the lengths and the "
                "number of replicas of each pool, after Melange (arXiv:2404.14527). Each simulation that misses the "
                "service level lowers the estimated capacity of its pools, so another division of lengths may be "
                "cheaper. Mixed fleets that cost more are not searched."
            )
        )
    return notes
