"""The frame of every command that asks a question about a scenario: its options, loading, folder, workplace and end.

A command is a function of `Asked` under `@asks(...)`; what it has beyond the frame is its answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import typer

from sim.cli.shared.common import (
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
    say_what_is_ignored,
    scenario_file,
    show_all,
    show_money_of,
    usable,
)
from sim.cli.shared.hint import next_command, shown_to_people
from sim.cli.shared.naming import default_folder
from sim.cli.shared.workplace import Address, Wait, workplace
from sim.language import ENGLISH, speaking
from sim.study.fleets.capacity import RELATIVE

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
        from sim.report.page.document import as_json

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
        from sim.report.words.goals import unjudged
        from sim.scenario.checks.hostless import hostless_notes

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
    from sim.report.words.exactness import UNSWEPT
    from sim.scenario.job.load import has_job, load_job
    from sim.scenario.reading.load import load, load_for_size

    path, catalog = scenario_file(given["scenario"]), load_catalog()
    numbers = {name: given[name] for name in ("seed", "replications")}
    read: Callable[..., Any] = partial(load_for_size if fleets_optional else load, swept=command not in UNSWEPT)
    if jobs and has_job(path):
        read = load_job
    scenario = read(path, given["sets"] or (), catalog=catalog, **numbers)
    show_money_of(scenario)
    named = numbers | ({"relative": narrowed(given["relative"])} if "relative" in given else {})
    folder = usable(
        given["out"] or default_folder(scenario, f"-{command}" if suffix is None else suffix, given["sets"], **named)
    )
    return Asked(command, path, scenario, catalog, folder, given)
