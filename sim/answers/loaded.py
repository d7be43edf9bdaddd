"""Finished answers of repeatable questions loaded from disk, and evaluated under other prices and terms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.answers.answer import write_answer
from sim.answers.folder import manifest_of
from sim.answers.questions import QUESTIONS, RepeatableQuestion, Task
from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import options
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, as_data
from sim.study.capacity_tolerance import RELATIVE
from sim.study.execution.cases import NotStored, StoredOnly
from sim.study.execution.digest import SCENARIO, quantities, rests_on
from sim.study.execution.durable import POINTS
from sim.study.execution.store import load_case
from sim.study.reprice import SCENARIO_FILE, changed_input, refusal
from sim.yamlio import Document


def repeatable(run: Path) -> RepeatableQuestion | None:
    """Return the question that *run* answers; None if its answer cannot be evaluated without a simulation."""
    command = str(((manifest_of(run) or {}).get("question") or {}).get("command"))
    question = QUESTIONS.get(command)
    return question if isinstance(question, RepeatableQuestion) else None


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """Answer under given prices and terms."""

    question: RepeatableQuestion
    scenario: Scenario
    found: Any
    """Return value of the question's `evaluate`."""
    stated: Scenario
    """Scenario of the run, without changes."""
    values: Mapping[str, Any]
    """Changes: dotted path -> value."""


class QuestionAnswers:
    """Evaluations of one finished answer from its stored simulations; the last one is cached.

    Raises
    ------
    ScenarioErrors
        Where a simulation is missing, or where the program, the catalogue or a file has changed since.

    """

    def __init__(self, run: Path, catalog: Catalog, question: RepeatableQuestion) -> None:
        self.run, self.catalog, self.question = run, catalog, question
        scenario = question.read(run / SCENARIO_FILE, catalog=catalog)
        self._data = {key: value for key, value in as_data(scenario).items() if key != "sweep"}
        manifest = manifest_of(run) or {}
        self._relative = float(manifest.get("question", {}).get("options", {}).get("relative", RELATIVE))
        try:
            self._measured = question.measure(Task(scenario, catalog, run, StoredOnly(), self._relative, quiet=True))
            found = question.evaluate(scenario, catalog, self._measured)
        except NotStored as error:
            raise ScenarioErrors(self._why_missing(scenario, error)) from None
        self.stated = self._last = QuestionAnswer(question, scenario, found, scenario, {})

    def under(self, values: Mapping[str, Any]) -> QuestionAnswer:
        """Return the answer with *values*, prices and terms by dotted path.

        Raises
        ------
        ScenarioErrors
            Where a value needs a simulation, or is not allowed.

        """
        if not values:
            return self.stated
        if repr(sorted(self._last.values.items())) != repr(sorted(values.items())):
            scenario = self._checked(values)
            arguments = (self.catalog, self._measured, self.stated.found, list(values))
            self._last = self._answer(values, scenario, lambda: self.question.reevaluate(scenario, *arguments))
        return self._last

    def write(
        self, folder: Path, values: Mapping[str, Any], command: Sequence[str], report: bool, notes: Sequence[str]
    ) -> None:
        """Write the whole answer under *values* into *folder*, as a command does, with *notes*; raises as `under`."""
        scenario = self._checked(values)
        whole = self._answer(values, scenario, lambda: self.question.evaluate(scenario, self.catalog, self._measured))
        write_answer(
            self.question,
            scenario,
            self.catalog,
            folder,
            StoredOnly(),
            self._relative,
            report=report,
            command=command,
            found=whole.found,
            notes=notes,
        )

    def _answer(self, values: Mapping[str, Any], scenario: Scenario, evaluated: Callable[[], Any]) -> QuestionAnswer:
        try:
            found = evaluated()
        except NotStored:
            text = Message("needs loads that were not simulated: run gpufleet {command} with it", self.question.name)
            raise ScenarioErrors([InputError(f"--set {', '.join(values)}", 0, "", text)]) from None
        return QuestionAnswer(self.question, scenario, found, self.stated.scenario, values)

    def _checked(self, values: Mapping[str, Any]) -> Scenario:
        """Return the scenario of the run with *values*. Raises ScenarioErrors."""
        sets = options(values)
        wrong = [one for item in sets if (one := refusal(self._data, item)) is not None]
        if wrong:
            raise ScenarioErrors(wrong)
        document = Document(str(self.run / SCENARIO_FILE), self._data, None)
        scenario: Scenario = self.question.read(document, sets, catalog=self.catalog)
        for fleet in scenario.fleets:
            case = Case(fleet.name, {}, {}, 0)
            if quantities(scenario, case) != quantities(self.stated.scenario, case):
                raise ScenarioErrors([changed_input(self.run, SCENARIO)])
        return scenario

    def _why_missing(self, scenario: Scenario, error: NotStored) -> list[InputError]:
        """Return what has changed since the run, as far as its stored cases show it."""
        stored = next((one for path in (self.run / POINTS).glob("[!.]*") if (one := load_case(path))), None)
        if stored is not None and any(fleet.name == stored.fleet for fleet in scenario.fleets):
            now = rests_on(scenario, Case(stored.fleet, {}, {}, 0), self.catalog)
            parts = [what for what in {**stored.rests_on, **now} if what != SCENARIO]
            changed = [what for what in parts if stored.rests_on.get(what) != now.get(what)]
            if changed:
                return [changed_input(self.run, what) for what in changed]
        return [InputError(str(self.run), 0, "", str(error))]
