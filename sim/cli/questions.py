"""Commands that ask a question about a scenario: run, capacity, size, sensitivity, breakeven and plan.

A command is a function of `Asked` under `@asks(...)`, which gives it options, the scenario, a folder for its results,
a workplace and an end; what the function has beyond that is its answer. Without --out the folder has a name that
says what was asked.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import typer

from sim.cli.frame import (
    Force,
    Format,
    NoReport,
    Out,
    Quiet,
    Relative,
    Replications,
    ScenarioFile,
    Seed,
    Sets,
    Workers,
    app,
    bad_input_told,
    command_line,
    fail,
    narrowed,
    next_command,
    say_what_is_ignored,
    scenario_file,
    show_all,
    show_money_of,
    shown_to_people,
    usable,
)
from sim.cli.workplace import Address, Wait, workplace
from sim.language import ENGLISH, speaking
from sim.study.capacity_tolerance import RELATIVE

LONGEST = 100
"""Of what was set, in characters."""


def default_folder(scenario: Any, suffix: str, sets: Sequence[str] | None, **options: Any) -> Path:
    """outputs/<scenario's name><suffix>, and what was set on the command line.

    So the answer to one question never lies where that to another does: 4x4090-vs-2xa100--rate_rps=0.5--seed=3.
    *options* that are None were not given.
    """
    return Path("outputs") / f"{scenario.name}{suffix}{_settings_in_name(scenario, sets or (), options)}"


def repriced_folder(run: Path, scenario: Any, sets: Sequence[str] | None) -> Path:
    """Beside the *run*, with the prices that were set."""
    return run.with_name(f"{run.name}-repriced{_settings_in_name(scenario, sets or (), {})}")


def _settings_in_name(scenario: Any, sets: Sequence[str], options: dict[str, Any]) -> str:
    """--key=value of everything, with a digest where names of files cannot hold it all."""
    given = [(path.strip(), value.strip()) for path, _, value in (item.partition("=") for item in sets)]
    short = _short([path for path, _ in given], scenario)
    named = sorted({short[path]: value for path, value in given}.items())
    named += [(name, str(value)) for name, value in options.items() if value is not None]
    if not named:
        return ""
    exact = "".join(f"--{name}={value}" for name, value in named)
    safe = "".join(f"--{_safe(name)}={_safe(value)}" for name, value in named)
    if safe == exact and len(safe) <= LONGEST:
        return safe
    digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:6]
    return f"{safe[:LONGEST].rstrip('-=.,')}--{digest}"


def _safe(text: str) -> str:
    """In characters that every file system and shell takes as they are."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-.")


def _short(paths: Sequence[str], scenario: Any) -> dict[str, str]:
    """Each path's shortest suffix that no other place of the scenario ends in."""
    from sim.scenario.reading.errors import dotted
    from sim.scenario.reading.layers import place_of
    from sim.scenario.sweep import shortest_label

    data = scenario.model_dump(mode="json")
    places = {dotted(place) for place in _places(data)}
    found = {}
    for path in paths:
        try:
            own = dotted(place_of(data, path))
        except LookupError:
            own = path
        found[path] = shortest_label(path, [other for other in (*places, *paths) if other not in (own, path)])
    return found


def _places(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in items:
        yield (*above, step)
        yield from _places(value, (*above, step))


OPTIONS: dict[str, tuple[Any, Any]] = {
    "scenario": (ScenarioFile, Parameter.empty),
    "sets": (Sets, None),
    "seed": (Seed, None),
    "replications": (Replications, None),
    "workers": (Workers, None),
    "cluster": (Address, None),
    "wait": (Wait, None),
    "out": (Out, None),
    "relative": (Relative, RELATIVE),
    "no_report": (NoReport, False),
    "force": (Force, False),
    "quiet": (Quiet, False),
    "format": (Format, "table"),
}
"""Option -> its type for typer, and its default."""
ON_REQUEST = frozenset({"relative"})
"""Only commands that name these have them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it was typed, with its scenario read and the folder of its answer known to be usable."""

    command: str
    path: Path
    scenario: Any
    catalog: Any
    folder: Path
    given: dict[str, Any]
    """Option -> value."""

    @property
    def relative(self) -> float:
        """Width of the last bracket in the search for a capacity."""
        return float(self.given["relative"])

    def refuse(self, *reasons: str) -> None:
        """Ends the command with those *reasons* that are not empty, each after the scenario's path."""
        if told := [f"{self.path}: {reason}" for reason in reasons if reason]:
            fail("\n".join(dict.fromkeys(told)))

    def refuse_unable(self, reasons: Mapping[str, str]) -> None:
        """Ends the command where no fleet can run: *reasons* has, for each fleet, why it cannot, or an empty text."""
        if all(reasons.values()):
            self.refuse(*(f"fleets.{fleet}: {reason}" for fleet, reason in reasons.items()))

    def say_what_is_ignored(self, **instead: Any) -> None:
        """On stderr; where a section is taken to be another than the scenario's, *instead* has it."""
        scenario = self.scenario.model_copy(update=instead) if instead else self.scenario
        say_what_is_ignored(self.command, scenario, self.given["quiet"])

    def delivered(self, deliver: Callable[..., Any]) -> Any:
        """What *deliver*, a function of sim.deliver, returns: it simulates, and writes the folder."""
        given = self.given
        more = {"relative": given["relative"]} if "relative" in given else {}
        with workplace(
            given["workers"], given["cluster"], given["wait"], self.folder, self.scenario, self.path
        ) as there:
            return deliver(
                scenario=self.scenario,
                catalog=self.catalog,
                out=self.folder,
                workplace=there,
                quiet=given["quiet"],
                command=command_line(),
                force=given["force"],
                report=not given["no_report"],
                **more,
            )

    def show(self, document: Callable[[str], Mapping[str, Any]], told: Callable[[], Sequence[Any]]) -> None:
        """Prints the answer: by --format json the *document* of a folder, else tables and lines, unless --quiet."""
        from sim.report.json_document import as_json

        if self.given["format"] == "json":
            with speaking(ENGLISH):
                typer.echo(as_json(document(str(self.folder))))
        elif not self.given["quiet"]:
            show_all(*told(), *self._next())

    def _next(self) -> list[str]:
        """The next useful command, for somebody at a terminal."""
        if not shown_to_people():
            return []
        found = next_command(self.command, self.path, self.folder, self.scenario)
        return [found] if found else []

    def notes(self) -> list[str]:
        """Sentences about hosts that the bill leaves out, and about what this command does not judge."""
        from sim.report.words.service_level import unjudged
        from sim.scenario.checks.hardware import hostless_notes

        over_failures = [] if self.command in ("capacity", "size") else unjudged(self.scenario.slo)
        return [*hostless_notes(self.scenario, self.catalog), *over_failures]


Answer = Callable[[Asked], None]


def asks(
    *on_request: str, suffix: str | None = None, fleets_optional: bool = False, jobs: bool = False
) -> Callable[[Answer], Answer]:
    """Makes a function of `Asked` the command of its name, with the common options and those *on_request*.

    *suffix* ends the name of the usual folder; left out: the command's name. With *fleets_optional* a scenario with a
    section `size` may have no fleets of its own; with *jobs* one with a `job` is read, too.
    """
    names = [name for name in OPTIONS if name not in ON_REQUEST or name in on_request]

    def command_of(answer: Answer) -> Answer:
        def command(**given: Any) -> None:
            with bad_input_told():
                answer(_asked(answer.__name__, given, suffix, fleets_optional, jobs))

        command.__name__, command.__doc__ = answer.__name__, answer.__doc__
        command.__annotations__ = {name: OPTIONS[name][0] for name in names}
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=OPTIONS[name][1], annotation=OPTIONS[name][0])
            for name in names
        ]
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        app.command()(command)
        return answer

    return command_of


def _asked(command: str, given: dict[str, Any], suffix: str | None, fleets_optional: bool, jobs: bool) -> Asked:
    from sim.catalogue.catalog import load_catalog
    from sim.report.words.precision import UNSWEPT
    from sim.scenario.reading.load import has_job, load, load_for_size

    path, catalog = scenario_file(given["scenario"]), load_catalog()
    numbers = {name: given[name] for name in ("seed", "replications")}
    read: Callable[..., Any] = partial(load_for_size if fleets_optional else load, swept=command not in UNSWEPT)
    if jobs and has_job(path):
        from sim.jobs.load import load_job

        read = load_job
    scenario = read(path, given["sets"] or (), catalog=catalog, **numbers)
    show_money_of(scenario)
    named = numbers | ({"relative": narrowed(given["relative"])} if "relative" in given else {})
    folder = usable(
        given["out"] or default_folder(scenario, f"-{command}" if suffix is None else suffix, given["sets"], **named)
    )
    return Asked(command, path, scenario, catalog, folder, given)


@asks(suffix="", jobs=True)
def run(asked: Asked) -> None:
    """Simulate a scenario and write tables, curves and a report."""
    from sim.deliver.run import futures_told, run_scenario
    from sim.report.assumptions import price_age_note
    from sim.report.json_document import run_document
    from sim.report.prediction_accuracy import extrapolated_note
    from sim.report.run.terminal import headed, terminal_differences, terminal_table
    from sim.report.run.verdict import Verdict, verdict_of
    from sim.report.words.precision import precision_notes
    from sim.scenario.schema import Scenario
    from sim.scenario.sections.comparison import models_of
    from sim.scenario.sweep import axes
    from sim.study.execution.cases import limits
    from sim.study.monte_carlo import stored_disputes
    from sim.study.points import summarize

    scenario, folder = asked.scenario, asked.folder
    if not isinstance(scenario, Scenario):
        _run_work(asked)
        return
    cases = asked.delivered(run_scenario)
    told = (cases, axes(scenario), limits(scenario))

    def notes() -> list[str]:
        far = extrapolated_note(scenario, asked.catalog)
        settled = [*scenario.workload.notes(), *precision_notes(scenario, cases)]
        aged = price_age_note(scenario, asked.catalog)
        return [*settled, *far, *aged, *asked.notes(), *futures_told(folder)]

    def verdict() -> Verdict:
        return verdict_of(scenario, asked.catalog, summarize(*told), disputes=stored_disputes(folder))

    asked.show(
        lambda out: run_document(scenario, asked.catalog, cases, notes(), out),
        lambda: [
            *headed(verdict(), scenario),
            terminal_table(*told),
            *terminal_differences(*told, models_of(scenario, scenario.compare)),
            *notes(),
            f"results in {folder}",
        ],
    )
    if all(case.status == "infeasible" for case in cases):
        asked.refuse(*(f"fleets.{case.fleet}: {case.reason}" for case in cases))


def _run_work(asked: Asked) -> None:
    """A job, or a queue of jobs, in place of a service."""
    from sim.deliver.jobs import run_work
    from sim.jobs.kinds import kind_of

    kind, rows = kind_of(asked.scenario), asked.delivered(run_work)
    told = kind.verdict(rows)
    asked.show(
        lambda out: kind.document(asked.scenario, rows, out),
        lambda: [told.headline, "", *kind.tables(rows), *told.findings, f"results in {asked.folder}"],
    )
    if not any(row.ok for row in rows):
        asked.refuse(*(f"fleets.{row.fleet}: {row.outcome.plan.infeasible}" for row in rows))


@asks("relative")
def capacity(asked: Asked) -> None:
    """Find the highest load at which each fleet still meets its service level."""
    from sim.deliver.questions import deliver_capacity
    from sim.report.capacity import capacity_document, capacity_rows, capacity_table, findings
    from sim.report.words.precision import unsettled
    from sim.study.capacity import precision_of, why_no_capacity
    from sim.study.load_axis import LoadAxis

    scenario = asked.scenario
    asked.refuse(why_no_capacity(scenario))
    axis = LoadAxis.of(scenario)
    asked.say_what_is_ignored(precision=precision_of(scenario, asked.relative))
    found = asked.delivered(deliver_capacity)
    rows = capacity_rows(found, axis, scenario.slo)
    asked.show(
        lambda folder: capacity_document(scenario, found, axis, asked.relative, folder),
        lambda: [
            *unsettled(found),
            capacity_table(rows, axis, scenario.slo),
            *findings(found, rows, axis, scenario, asked.relative),
            *asked.notes(),
            f"results in {asked.folder}",
        ],
    )
    asked.refuse_unable({one.fleet: one.reason for one in found})


@asks(fleets_optional=True)
def size(asked: Asked) -> None:
    """The cheapest fleet that meets the service level at the scenario's load, and why the others lose.

    The scenario's section `size` says what there is to choose from.
    """
    from sim.deliver.size import deliver_size
    from sim.report.size import size_document
    from sim.study.size.bounds import why_no_size

    scenario = asked.scenario
    asked.refuse(why_no_size(scenario))
    asked.say_what_is_ignored()
    found = asked.delivered(deliver_size)
    asked.show(
        lambda folder: size_document(found, scenario, folder),
        lambda: list(_size_lines(asked, found)),
    )


def _size_lines(asked: Asked, found: Any) -> Iterator[Any]:
    from sim.report.page.page import text_table
    from sim.report.size import MOST_ROWS, sentences
    from sim.report.size_candidates import impossible, ranking
    from sim.report.words.money import rate_notes

    scenario, folder = asked.scenario, asked.folder
    if all(one.status == "impossible" for one in found.tried):
        yield from (text_table(impossible(found)), "")
    yield text_table(ranking(found, scenario, MOST_ROWS))
    yield from sentences(found, scenario)
    yield from rate_notes(scenario)
    yield from asked.notes()
    yield f"all {len(found.tried)} candidates in {folder}/size.csv"
    if found.winner is not None:
        year = ", which adds the bill of its year" if scenario.load_profile is not None else ""
        yield f"the winner alone in {folder}/winner.yaml, for gpufleet run{year}"
    if found.nearest is not None:
        yield f"the best fleet within the budget alone in {folder}/within_budget.yaml, for gpufleet run"


@asks()
def sensitivity(asked: Asked) -> None:
    """Which inputs change the cost of each fleet and their difference, and what the difference is made of.

    The scenario's section `sensitivity` names inputs and ranges; left out: prices, rates, load and lengths, 30 % each.
    """
    from sim.deliver.questions import deliver_sensitivity
    from sim.report.page.page import text_table
    from sim.report.sensitivity import gap_sentences, sensitivity_document, sentences, tables
    from sim.study.sensitivity import why_no_sensitivity

    scenario = asked.scenario
    asked.refuse(*why_no_sensitivity(scenario))
    asked.say_what_is_ignored()
    answer = asked.delivered(deliver_sensitivity)
    asked.show(
        lambda folder: sensitivity_document(scenario, answer, folder),
        lambda: [
            *(part for table in tables(answer) for part in (text_table(table), "")),
            *filter(None, [*sentences(answer), *gap_sentences(answer), *answer.found.reasons]),
            *filter(None, [answer.explained.reason, *asked.notes()]),
            f"results in {asked.folder}",
        ],
    )
    asked.refuse_unable(dict.fromkeys(answer.found.base, "") | dict(answer.found.unable))


@asks()
def breakeven(asked: Asked) -> None:
    """Rent, buy or API: cost over utilisation and over months, and what tips the verdict.

    The scenario's section `breakeven` names other ways to pay for its fleets.
    """
    from sim.deliver.questions import deliver_breakeven
    from sim.report.breakeven import breakeven_document, left_out, owned_peaks, ranking, sentences, unmoved
    from sim.report.page.page import text_table
    from sim.report.words.money import rate_notes
    from sim.report.words.precision import capacity_notes
    from sim.report.words.service_level import load_notes
    from sim.study.breakeven import why_no_breakeven
    from sim.study.capacity import why_no_capacity

    scenario = asked.scenario
    asked.refuse(why_no_capacity(scenario))
    asked.refuse(*why_no_breakeven(scenario))
    asked.say_what_is_ignored()
    answer = asked.delivered(deliver_breakeven)
    asked.show(
        lambda folder: breakeven_document(scenario, answer, folder),
        lambda: [
            text_table(ranking(answer)),
            *filter(None, [*sentences(answer), unmoved(answer), *left_out(answer)]),
            *load_notes(scenario),
            *rate_notes(scenario),
            *owned_peaks(answer, scenario),
            *capacity_notes(answer.capacities, scenario.precision),
            *asked.notes(),
            f"results in {asked.folder}",
        ],
    )
    asked.refuse_unable({one.fleet: one.reason for one in answer.capacities})


@asks("relative")
def plan(asked: Asked) -> None:
    """Plan several years month by month: what to buy, replace or rent when, and the cash.

    The scenario's section `plan` gives demand, orders and terms.
    """
    from sim.deliver.questions import deliver_plan
    from sim.report.plan import plan_document, plan_rate_notes, verdict_of_plan
    from sim.report.plan_tables import plan_table
    from sim.report.words.service_level import load_notes
    from sim.study.capacity import why_no_capacity
    from sim.study.plan import why_no_plan

    scenario = asked.scenario
    asked.refuse(why_no_plan(scenario))
    asked.refuse(why_no_capacity(scenario))
    asked.say_what_is_ignored()
    found = asked.delivered(deliver_plan)
    answer = verdict_of_plan(scenario, found)
    asked.show(
        lambda folder: plan_document(scenario, found, folder),
        lambda: [
            plan_table(found),
            "",
            answer.headline,
            *answer.findings,
            *load_notes(scenario),
            *plan_rate_notes(scenario),
            *asked.notes(),
            f"results in {asked.folder}",
        ],
    )
    asked.refuse_unable({one.fleet: one.capacity.reason for one in found if not one.api})
