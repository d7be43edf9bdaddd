"""Commands that answer a question about a scenario: run, capacity, size, sensitivity, breakeven and plan.

All have the same options, a scenario, a folder for their results and a workplace. `run` is written out here; the other
commands are made from the records of `QUESTIONS`. Without --out, the folder is named after the scenario and its
settings.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import typer

from sim.answers.questions import QUESTIONS, Question
from sim.cli.frame import (
    Catalogs,
    Details,
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
    catalog_for,
    command_line,
    copy_lines,
    fail,
    narrowed,
    next_command,
    print_to_stderr,
    process_count,
    report_bad_input,
    show_all,
    show_money_of,
    shown_to_people,
    usable,
    watched,
)
from sim.cli.workplace import Address, Wait, pictures_beside, workplace
from sim.language import ENGLISH, speaking, translate_message
from sim.message import Message, joined, placed
from sim.scenario.reading.shipped import scenario_file
from sim.study.capacity_tolerance import RELATIVE

LONGEST = 100
"""Longest part of a folder's name that states the settings [characters]."""


def default_folder(scenario: Any, suffix: str, sets: Sequence[str] | None, **options: Any) -> Path:
    """Return outputs/<scenario's name><suffix>, followed by the settings of the command line.

    Different settings give different folders, such as 4x4090-vs-2xa100--rate_rps=0.5--seed=3. *options* that are None
    were not given.
    """
    return Path("outputs") / f"{scenario.name}{suffix}{_settings_in_name(scenario, sets or (), options)}"


def repriced_folder(run: Path, scenario: Any, sets: Sequence[str] | None) -> Path:
    """Return the folder beside the *run* that is named after the changed prices."""
    return run.with_name(f"{run.name}-repriced{_settings_in_name(scenario, sets or (), {})}")


def _settings_in_name(scenario: Any, sets: Sequence[str], options: dict[str, Any]) -> str:
    """Return --key=value for each setting, shortened and with a digest where a file name cannot hold them."""
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
    from hashlib import sha256

    digest = sha256(json.dumps(named).encode()).hexdigest()[:6]
    return f"{safe[:LONGEST].rstrip('-=.,')}--{digest}"


def _safe(text: str) -> str:
    """Return *text* in characters that need no quoting in any file system or shell."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-.")


def _short(paths: Sequence[str], scenario: Any) -> dict[str, str]:
    """Map each of *paths* to its shortest suffix that no other place of the scenario ends in."""
    from sim.scenario.reading.layers import place_of
    from sim.scenario.sweep import shortest_label
    from sim.validation import dotted

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
    "catalogs": (Catalogs, None),
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
    "details": (Details, False),
    "format": (Format, "table"),
}
"""Options of the commands: name -> (type for typer, default)."""
OF_SOME = ("relative", "details")
"""Options that only some commands have."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Command as typed, with its scenario read and its folder checked to be usable."""

    command: str
    path: Path
    scenario: Any
    catalog: Any
    folder: Path
    remote: Any
    """Folder on shared storage that receives a copy of the results; None without."""
    given: dict[str, Any]
    """Options of the command line: name -> value."""

    def refuse(self, *reasons: str) -> None:
        """End the command with those *reasons* that are not empty, each after the scenario's path."""
        if lines := [placed(self.path, reason) for reason in reasons if reason]:
            fail(joined("\n", dict.fromkeys(lines)))

    def refuse_unable(self, reasons: Mapping[str, str]) -> None:
        """End the command if no fleet can run; *reasons* maps fleets to reasons, empty for a fleet that can run."""
        if all(reasons.values()):
            self.refuse(*(Message("fleets.{fleet}: {reason}", fleet, reason) for fleet, reason in reasons.items()))

    def answered(self, write: Callable[..., Any]) -> Any:
        """Call *write*, a function of sim.answers that simulates and writes the folder; return its result."""
        from sim.answers.remote import copied

        given = self.given
        machines = workplace(given["workers"], given["cluster"], given["wait"], self.folder, self.scenario, self.path)
        with machines as opened, copied(self.remote):
            return write(
                scenario=self.scenario,
                catalog=self.catalog,
                out=self.folder,
                workplace=opened,
                quiet=given["quiet"],
                command=command_line(),
                force=given["force"],
                report=not given["no_report"],
            )

    def show(self, document: Callable[[str], Mapping[str, Any]], lines: Callable[[], Iterable[Any]]) -> None:
        """Print the answer: its *document* with --format json, else *lines*, unless --quiet."""
        from sim.report.json_document import as_json

        if self.given["format"] == "json":
            with speaking(ENGLISH):
                typer.echo(as_json(document(str(self.folder))))
        elif not self.given["quiet"]:
            show_all(*lines(), *copy_lines(self.remote), *self._next())

    def _next(self) -> list[str]:
        """Return the command to try next, as a list of one, if the output is a terminal; else an empty list."""
        if not shown_to_people():
            return []
        found = next_command(self.command, self.path, self.folder, self.scenario)
        return [found] if found else []

    def notes(self, over_failures: bool = False) -> list[str]:
        """Return notes on hosts that are left out and, unless *over_failures*, on an availability not judged."""
        from sim.report.words.service_level import availability_notes
        from sim.scenario.checks.hardware import gpus_without_server_notes

        not_judged = [] if over_failures else availability_notes(self.scenario.slo)
        return [*gpus_without_server_notes(self.scenario, self.catalog), *not_judged]


Answer = Callable[[CommandContext], None]
Reader = Callable[..., Any]
"""Function of the scenario's path, the values of --set and, by name, catalogue, seed and replications."""


def command(
    name: str, text: str | None, suffix: str, read: Reader, answer: Answer, further: Sequence[str] = ()
) -> None:
    """Make *answer* the command *name* with the help *text* and the options that all commands have.

    *further* names those of OF_SOME that it also has. *suffix* ends the name of the default folder.
    """
    names = [option for option in OPTIONS if option in further or option not in OF_SOME]

    def typed(**given: Any) -> None:
        # the pictures' process starts its engine while the scenario is read
        with report_bad_input(), pictures_beside(given["workers"], not given["no_report"]):
            answer(_context(name, given, suffix, read))

    typed.__name__, typed.__doc__ = name, text
    typed.__annotations__ = {option: OPTIONS[option][0] for option in names}
    parameters = [
        Parameter(option, Parameter.KEYWORD_ONLY, default=OPTIONS[option][1], annotation=OPTIONS[option][0])
        for option in names
    ]
    typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    app.command()(typed)


def _context(name: str, given: dict[str, Any], suffix: str, read: Reader) -> CommandContext:
    from sim.answers.remote import located

    path = scenario_file(given["scenario"])
    catalog = catalog_for(path, given["catalogs"])
    numbers = {name: given[name] for name in ("seed", "replications")}
    with watched(None, quiet=given["quiet"]):
        scenario = read(path, given["sets"] or (), catalog=catalog, **numbers)
    show_money_of(scenario)
    named = numbers | ({"relative": narrowed(given["relative"])} if "relative" in given else {})
    folder, remote = located(given["out"] or default_folder(scenario, suffix, given["sets"], **named))
    return CommandContext(name, path, scenario, catalog, usable(folder), remote, given)


def answered(question: Question, context: CommandContext) -> None:
    """Answer *question* in the context *context* of its command, and show the answer."""
    from sim.answers.answer import write_answer

    scenario, relative = context.scenario, context.given.get("relative", RELATIVE)
    context.refuse(*question.why_not(scenario))
    if not context.given["quiet"] and (note := question.ignored(scenario, relative)):
        print_to_stderr(note)
    answer = context.answered(partial(write_answer, question, relative=relative))
    context.show(
        lambda out: question.document(answer, out),
        lambda: question.lines(answer, context.notes(question.over_failures), context.folder),
    )
    context.refuse_unable(question.unable(answer.found))


def _read_run(path: Path, sets: Sequence[str], **options: Any) -> Any:
    """Return the scenario, or the job or the queue of jobs, in the file *path*."""
    from sim.scenario.reading.load import has_job, load

    if has_job(path):
        from sim.jobs.load import load_job

        return load_job(path, sets, **options)
    return load(path, sets, **options)


def run(context: CommandContext) -> None:
    """Simulate a scenario: verdict, table, curves and report."""
    from sim.answers.run import monte_carlo_notes, run_scenario
    from sim.report.check_summary import long_run_note
    from sim.report.prediction_accuracy import extrapolated_note
    from sim.report.price_age import price_age_note
    from sim.report.run.json_document import run_document
    from sim.report.run.terminal import DETAILS, decision, headed, terminal_differences, terminal_table
    from sim.report.run.verdict import Verdict, verdict_of
    from sim.report.words.precision import precision_notes
    from sim.scenario.checks.hardware import gpus_without_server_notes
    from sim.scenario.schema import Scenario
    from sim.scenario.sections.comparison import models_of
    from sim.scenario.sweep import axes
    from sim.study.execution.cases import limits
    from sim.study.monte_carlo import stored_disputes
    from sim.study.points import summarize

    scenario, folder = context.scenario, context.folder
    if not isinstance(scenario, Scenario):
        _run_work(context)
        return
    given = context.given
    alone = not given["quiet"] and given["cluster"] is None
    workers = process_count(given["workers"])
    if alone and (note := long_run_note(scenario, workers)):
        print_to_stderr(note)
    cases = context.answered(run_scenario)
    shown = (cases, axes(scenario), limits(scenario))

    def notes() -> list[str]:
        far = extrapolated_note(scenario, context.catalog)
        settled = [*scenario.workload.notes(), *precision_notes(scenario, cases)]
        aged = price_age_note(scenario, context.catalog)
        return [*settled, *far, *aged, *context.notes(), *monte_carlo_notes(folder)]

    def brief() -> list[str]:
        settled = [*scenario.workload.notes(), *precision_notes(scenario, cases)]
        aged, bare = price_age_note(scenario, context.catalog), gpus_without_server_notes(scenario, context.catalog)
        return [*settled, *extrapolated_note(scenario, context.catalog), *aged, *bare, *monte_carlo_notes(folder)]

    def tables() -> list[Any]:
        models = models_of(scenario, scenario.compare)
        if context.given["details"]:
            return [terminal_table(*shown), *terminal_differences(*shown, models), *notes()]
        of_year = scenario.load_profile is not None
        return [*decision(*shown, models, of_year), *brief(), translate_message(DETAILS)]

    def verdict() -> Verdict:
        return verdict_of(scenario, context.catalog, summarize(*shown), disputes=stored_disputes(folder))

    context.show(
        lambda out: run_document(scenario, context.catalog, cases, notes(), out),
        lambda: [
            *headed(verdict(), scenario),
            *tables(),
            Message("results in {folder}", folder),
        ],
    )
    if all(case.status == "infeasible" for case in cases):
        context.refuse(*(Message("fleets.{fleet}: {reason}", case.fleet, case.reason) for case in cases))


def _run_work(context: CommandContext) -> None:
    """Answer `run` for a training job or a queue of jobs."""
    from sim.answers.jobs import run_work
    from sim.jobs.kinds import kind_of

    kind, rows = kind_of(context.scenario), context.answered(run_work)
    verdict = kind.verdict(rows)
    context.show(
        lambda out: kind.document(context.scenario, rows, out),
        lambda: [
            verdict.headline,
            "",
            *kind.tables(rows),
            *verdict.findings,
            Message("results in {folder}", context.folder),
        ],
    )
    if not any(row.ok for row in rows):
        context.refuse(*(Message("fleets.{fleet}: {reason}", row.fleet, row.outcome.plan.infeasible) for row in rows))


command("run", run.__doc__, "", _read_run, run, ["details"])
for one in QUESTIONS.values():
    command(
        one.name,
        one.__doc__,
        f"-{one.name}",
        one.read,
        partial(answered, one),
        ["relative"] if one.relative_option else (),
    )
