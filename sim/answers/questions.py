"""Questions about the fleets of a scenario, one record each: capacity, size, sensitivity, break-even and plan.

A record defines how its question is refused, computed, written, shown and drawn, and which of its tables is the main
one. The commands, the Python API, the workspace and the exports are derived from `QUESTIONS`. The methods import their
dependencies when they are called, so that the list loads quickly where only names are needed (`gpufleet --help`,
`import sim`).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sim.message import Message

Charts = tuple[Sequence[str], Callable[[str], Any]]
"""(kinds of charts, picklable function that draws the charts of one kind, or of all kinds for an empty name)."""


@dataclass(frozen=True, slots=True)
class Task:
    """Scenario whose answer is to be computed, and the executor of its simulations."""

    scenario: Any
    catalog: Any
    out: Path
    workplace: Any
    relative: float
    """Width of the last bracket in the search for a capacity, as a fraction of the capacity."""
    quiet: bool
    """True if no progress is shown."""

    @property
    def study_arguments(self) -> tuple[Any, Path, Any]:
        """Catalogue, folder and workplace: the arguments of every study after the scenario."""
        return self.catalog, self.out, self.workplace


@dataclass(frozen=True, slots=True)
class Answered:
    """Scenario with the answer to a question about it."""

    scenario: Any
    found: Any
    """Return value of the question's `compute`."""
    relative: float
    """Width of the last bracket in the search for a capacity, as a fraction of the capacity."""
    remarks: Sequence[str] = ()
    """Sentences that the page shows beside the findings."""
    resolved: Sequence[Mapping[str, Any]] = ()
    """Content of resolved.yaml."""

    @property
    def axis(self) -> Any:
        """Load that a search for a capacity raises."""
        from sim.study.load_axis import LoadAxis

        return LoadAxis.of(self.scenario)


class Question(ABC):
    """Question about a scenario: a command, a function of `sim`, and a folder with tables, pictures and a page.

    The docstring of a subclass is the help of its command. *found* is the return value of `compute`.
    """

    name: str
    """Name of the command, of the function of `sim` and of the page."""
    main: str
    """Name of the main table, without `.csv`."""
    sheets: Sequence[tuple[str, str]] = ()
    """Further tables of an exported workbook: (sheet, name of the table)."""
    relative_option = False
    """True if the command has --relative, the width of the last bracket in the search for a capacity."""
    fleets_optional = False
    """True if a scenario with a section `size` needs no fleets of its own."""
    yearly = False
    """True if the loads of a `load_profile` are simulated without a sweep."""
    over_failures = False
    """True if `slo.availability` is judged."""

    def read(self, *args: Any, **options: Any) -> Any:
        """Return the scenario that `load` returns for the same arguments; its sweep is not simulated."""
        from sim.scenario.reading.load import load, load_for_size

        return (load_for_size if self.fleets_optional else load)(*args, swept=False, **options)

    @abstractmethod
    def why_not(self, scenario: Any) -> Iterable[str]:
        """Return the reasons why *scenario* has no answer; empty texts are skipped."""

    def ignored(self, scenario: Any, relative: float) -> str:
        """Return a sentence on the sections of *scenario* that this question ignores; empty if there are none."""
        from sim.report.words.precision import ignored

        return ignored(self.name, scenario, self.yearly)

    def adjusted(self, scenario: Any) -> Any:
        """Return *scenario* with the changes that this question makes before it is simulated and written."""
        return scenario

    @abstractmethod
    def compute(self, task: Task) -> Any:
        """Return the answer; points that are missing in the folder of the *task* are simulated."""

    def simulated(self, found: Any) -> dict[str, Any]:
        """Return the entries that this question adds to manifest.json."""
        return {}

    def fleets(self, found: Any) -> Sequence[Any] | None:
        """Return the fleets of resolved.yaml; None for all fleets of the scenario."""
        return None

    def remarks(self, scenario: Any) -> Sequence[str]:
        """Return the sentences that the page has before its remarks on hosts."""
        return ()

    @abstractmethod
    def write(self, folder: Path, answer: Answered, with_pictures: bool) -> None:
        """Write the tables and, *with_pictures*, picture and page into *folder*."""

    @abstractmethod
    def document(self, answer: Answered, out: str) -> dict[str, Any]:
        """Return the answer for `--format json`."""

    @abstractmethod
    def tables(self, answer: Answered) -> Sequence[Any]:
        """Return the tables that a terminal and a notebook show."""

    @abstractmethod
    def lines(self, answer: Answered, notes: Sequence[str], folder: Path) -> Iterable[Any]:
        """Return the tables and sentences of the terminal, among them *notes*; all results are in *folder*."""

    def caveats(self, answer: Answered) -> Sequence[str]:
        """Return the sentences that the Python API adds to the findings of the document."""
        return ()

    @abstractmethod
    def charts(self, answer: Answered, question: str, headline: str) -> Charts:
        """Return the charts under the *question* and its answer."""

    def unable(self, found: Any) -> Mapping[str, str]:
        """Return fleet -> reason why it cannot run, empty if it can; {} where the answer itself states the reasons."""
        return {}


class _Capacity(Question):
    """Find the highest load of each fleet within its SLO."""

    name = main = "capacity"
    sheets = (("Search", "search"),)
    relative_option = over_failures = True

    def why_not(self, scenario: Any) -> Iterable[str]:
        from sim.study.capacity import why_no_capacity

        return [why_no_capacity(scenario)]

    def ignored(self, scenario: Any, relative: float) -> str:
        from sim.study.capacity import precision_of

        return super().ignored(scenario.model_copy(update={"precision": precision_of(scenario, relative)}), relative)

    def compute(self, task: Task) -> Any:
        from sim.report.progress import CaseProgress
        from sim.study.capacity import capacities, precision_of

        with CaseProgress(task.quiet, "searching", "searches") as progress:
            precision = precision_of(task.scenario, task.relative)
            return capacities(task.scenario, *task.study_arguments, task.relative, progress, precision)

    def simulated(self, found: Any) -> dict[str, Any]:
        return {"cases": sum(search.simulated for one in found for search in one.found)}

    def write(self, folder: Path, answer: Answered, with_pictures: bool) -> None:
        from sim.report.capacity import write_capacity

        options = (answer.axis, answer.relative, answer.remarks)
        write_capacity(folder, answer.scenario, answer.found, *options, with_pictures)

    def document(self, answer: Answered, out: str) -> dict[str, Any]:
        from sim.report.capacity import capacity_document

        return capacity_document(answer.scenario, answer.found, answer.axis, answer.relative, out)

    def tables(self, answer: Answered) -> Sequence[Any]:
        from sim.report.capacity import capacity_table

        return [capacity_table(self._rows(answer), answer.axis, answer.scenario.slo)]

    def _rows(self, answer: Answered) -> Any:
        from sim.report.capacity import capacity_rows

        return capacity_rows(answer.found, answer.axis, answer.scenario.slo)

    def lines(self, answer: Answered, notes: Sequence[str], folder: Path) -> Iterable[Any]:
        from sim.report.capacity import findings, headline

        return [
            headline(answer.found, self._rows(answer), answer.axis),
            "",
            *self.tables(answer),
            "",
            *findings(answer.found, self._rows(answer), answer.axis, answer.scenario, answer.relative),
            *notes,
            Message("results in {folder}", folder),
        ]

    def charts(self, answer: Answered, question: str, headline: str) -> Charts:
        shown = (answer.found, self._rows(answer), answer.axis, answer.scenario.slo)
        draw = partial(_draw_capacity, *shown, question, headline)
        return ["capacity"] if any(not one.reason for one in answer.found) else [], draw

    def unable(self, found: Any) -> Mapping[str, str]:
        return {one.fleet: one.reason for one in found}


class _Size(Question):
    """Find the cheapest fleet that meets the SLO at a given load.

    Also explain why the other candidates lose.

    The scenario's section `size` defines the candidates.
    """

    name = main = "size"
    sheets = (("Pareto", "pareto"),)
    fleets_optional = yearly = over_failures = True

    def why_not(self, scenario: Any) -> Iterable[str]:
        from sim.study.size.bounds import why_no_size

        return [why_no_size(scenario)]

    def adjusted(self, scenario: Any) -> Any:
        from sim.study.discounting import levelised

        return levelised(scenario)

    def compute(self, task: Task) -> Any:
        from sim.report.progress import SearchProgress
        from sim.study.size.search import search

        with SearchProgress(task.quiet) as progress:
            return search(task.scenario, *task.study_arguments, progress)

    def fleets(self, found: Any) -> Sequence[Any] | None:
        best = found.winner or found.best_within_budget
        return [best.fleet] if best is not None and best.fleet is not None else []

    def remarks(self, scenario: Any) -> Sequence[str]:
        from sim.report.words.money import rate_notes

        return rate_notes(scenario)

    def write(self, folder: Path, answer: Answered, with_pictures: bool) -> None:
        from sim.report.size import write_size

        write_size(folder, answer.found, answer.scenario, answer.remarks, with_pictures)

    def document(self, answer: Answered, out: str) -> dict[str, Any]:
        from sim.report.size import size_document

        return size_document(answer.found, answer.scenario, out)

    def tables(self, answer: Answered) -> Sequence[Any]:
        from sim.report.size import MOST_OTHERS, MOST_ROWS
        from sim.report.size_candidates import ranking

        return [ranking(answer.found, answer.scenario, MOST_ROWS, MOST_OTHERS)]

    def lines(self, answer: Answered, notes: Sequence[str], folder: Path) -> Iterator[Any]:
        from sim.report.page.page import text_table
        from sim.report.size import sentences
        from sim.report.size_candidates import impossible
        from sim.report.words.money import rate_notes

        if all(one.status == "impossible" for one in answer.found.candidates):
            yield from (text_table(impossible(answer.found)), "")
        verdict, *others = sentences(answer.found, answer.scenario)
        yield from (verdict, "", *self.tables(answer), "", *others)
        yield from rate_notes(answer.scenario)
        yield from notes
        yield Message("all {count} candidates in {folder}/size.csv", len(answer.found.candidates), folder)
        if answer.found.winner is not None:
            year = ", which adds the bill of its year" if answer.scenario.load_profile is not None else ""
            yield Message("the winner alone in {folder}/winner.yaml, for gpufleet run{year}", folder, year)
        if answer.found.fastest is not None:
            yield Message("the fastest within the ceiling alone in {folder}/fastest.yaml, for gpufleet run", folder)
        if answer.found.best_within_budget is not None:
            yield Message(
                "the best fleet within the budget alone in {folder}/within_budget.yaml, for gpufleet run", folder
            )

    def charts(self, answer: Answered, question: str, headline: str) -> Charts:
        from sim.report.size import key, panels

        return _charts_of(panels(answer.found, answer.scenario), question, headline, key(answer.found))


class _Sensitivity(Question):
    """Find the inputs that change the cost of each fleet.

    Also divide the difference of two fleets among its causes.

    The scenario's section `sensitivity` names inputs and ranges; default: prices, rates, load and lengths, 30 % each.
    """

    name = main = "sensitivity"

    def why_not(self, scenario: Any) -> Iterable[str]:
        from sim.study.sensitivity import why_no_sensitivity

        return why_no_sensitivity(scenario)

    def compute(self, task: Task) -> Any:
        from sim.report.progress import CaseProgress
        from sim.report.sensitivity import SensitivityAnswer
        from sim.scenario.sections.sensitivity import Sensitivity
        from sim.study.cost_gap import ExplainedGaps, explain
        from sim.study.sensitivity import USD, swings

        plain_scenario = task.scenario.model_copy(update={"sweep": None})
        with CaseProgress(task.quiet) as progress:
            found = swings(plain_scenario, *task.study_arguments, progress)
        asked = task.scenario.sensitivity or Sensitivity()
        names = asked.between or tuple(fleet.name for fleet in task.scenario.fleets[:2])
        between = (names[0], names[1]) if len(names) == 2 and all(name in found.base for name in names) else None
        explained = ExplainedGaps(())
        if between is not None and asked.metric == USD:
            with CaseProgress(task.quiet, "attributing the gap", "counterfactual fleets", later_stage=True) as progress:
                explained = explain(plain_scenario, *task.study_arguments, *between, progress)
        return SensitivityAnswer(found, explained, between, task.scenario.replications)

    def write(self, folder: Path, answer: Answered, with_pictures: bool) -> None:
        from sim.report.sensitivity import write_sensitivity

        write_sensitivity(folder, answer.found, answer.scenario, answer.remarks, with_pictures)

    def document(self, answer: Answered, out: str) -> dict[str, Any]:
        from sim.report.sensitivity import sensitivity_document

        return sensitivity_document(answer.scenario, answer.found, out)

    def tables(self, answer: Answered) -> Sequence[Any]:
        from sim.report.page.page import text_table
        from sim.report.sensitivity import tables

        return [text_table(table) for table in tables(answer.found)]

    def lines(self, answer: Answered, notes: Sequence[str], folder: Path) -> Iterable[Any]:
        from sim.report.sensitivity import gap_sentences, sentences

        return [
            *(part for table in self.tables(answer) for part in (table, "")),
            *filter(None, [*sentences(answer.found), *gap_sentences(answer.found), *answer.found.found.reasons]),
            *filter(None, [answer.found.explained.reason, *notes]),
            Message("results in {folder}", folder),
        ]

    def caveats(self, answer: Answered) -> Sequence[str]:
        return [*answer.found.found.reasons, *filter(None, [answer.found.explained.reason])]

    def charts(self, answer: Answered, question: str, headline: str) -> Charts:
        from sim.report.sensitivity import charts

        kinds = [kind for kind, several in charts(answer.found).items() if several]
        return kinds, partial(_draw_sensitivity, answer.found, question, headline)

    def unable(self, found: Any) -> Mapping[str, str]:
        return dict.fromkeys(found.found.base, "") | dict(found.found.unable)


FINANCING = (
    ("Financing", "financing"),
    ("Cash after tax", "financed_years"),
    ("Books", "books"),
    ("When to order", "timing"),
)
"""Sheets of answers with financing, tax, books or price paths: title and table."""


FINANCED = re.compile(
    r"(fleets\.[^.]+\.)?finance\.((loan|tax)\.|lease\.(payment|rate|residual|buyout|deposit)$)|breakeven\.financing\."
)
"""Paths of a scenario whose values change no figure before financing and tax, nor a tipping point."""


class RepeatableQuestion(Question):
    """Question whose answer is found in two steps: simulations, and an evaluation under prices and terms."""

    @abstractmethod
    def measure(self, task: Task) -> Any:
        """Return what the evaluation needs of the simulations; those missing in the folder of *task* are simulated."""

    @abstractmethod
    def evaluate(self, scenario: Any, catalog: Any, measured: Any) -> Any:
        """Return the answer to *scenario* from *measured*, whose scenario differs in prices and terms alone."""

    def reevaluate(self, scenario: Any, catalog: Any, measured: Any, before: Any, paths: Iterable[str]) -> Any:
        """Return the answer as `evaluate`, without searches that take seconds.

        *scenario* differs at the dotted *paths* from the one with the answer *before*.
        """
        return self.evaluate(scenario, catalog, measured)

    def compute(self, task: Task) -> Any:
        """Return the answer; points that are missing in the folder of the *task* are simulated."""
        return self.evaluate(task.scenario, task.catalog, self.measure(task))


class _Breakeven(RepeatableQuestion):
    """Compare renting, buying and an API over load and over months.

    Also find the inputs that tip the verdict.

    The scenario's section `breakeven` names other purchase options of its fleets.
    """

    name = "breakeven"
    main = "ranking"
    sheets = (("By utilisation", "breakeven"), ("Months", "months"), ("Tipping points", "tipping"), *FINANCING)
    yearly = True

    def why_not(self, scenario: Any) -> Iterable[str]:
        from sim.study.breakeven import why_no_breakeven
        from sim.study.capacity import why_no_capacity

        reason = why_no_capacity(scenario)
        return [reason] if reason else why_no_breakeven(scenario)

    def measure(self, task: Task) -> Any:
        from sim.report.progress import CaseProgress
        from sim.study.breakeven_costs import CandidateLedgers
        from sim.study.capacity import capacities

        plain_scenario = task.scenario.model_copy(update={"sweep": None})
        with CaseProgress(task.quiet, "searching capacities", "searches") as progress:
            most = capacities(plain_scenario, *task.study_arguments, task.relative, progress, task.scenario.precision)
        with CaseProgress(task.quiet, later_stage=True) as progress:
            return most, CandidateLedgers(task.scenario, *task.study_arguments, most, progress)

    def evaluate(self, scenario: Any, catalog: Any, measured: Any) -> Any:
        from sim.study.breakeven import decide

        most, ledgers = measured
        return decide(scenario, ledgers.under(scenario), most)

    def reevaluate(self, scenario: Any, catalog: Any, measured: Any, before: Any, paths: Iterable[str]) -> Any:
        from sim.study.breakeven import decide, refinanced

        most, ledgers = measured
        if all(FINANCED.match(path) for path in paths):
            return refinanced(before, ledgers.under(scenario))
        return decide(scenario, ledgers.under(scenario), most, with_tips=False)

    def write(self, folder: Path, answer: Answered, with_pictures: bool) -> None:
        from sim.report.breakeven import write_breakeven

        write_breakeven(folder, answer.found, answer.scenario, answer.remarks, with_pictures)

    def document(self, answer: Answered, out: str) -> dict[str, Any]:
        from sim.report.breakeven import breakeven_document

        return breakeven_document(answer.scenario, answer.found, out)

    def tables(self, answer: Answered) -> Sequence[Any]:
        from sim.report.breakeven import ranking
        from sim.report.page.page import text_table

        return [text_table(ranking(answer.found))]

    def lines(self, answer: Answered, notes: Sequence[str], folder: Path) -> Iterable[Any]:
        from sim.report.breakeven import (
            hours_sentences,
            inputs_without_effect,
            left_out,
            owned_peaks,
            sentences,
            tipping_limits,
        )
        from sim.report.words.money import rate_notes
        from sim.report.words.precision import capacity_notes, unsteady_capacity_notes
        from sim.report.words.service_level import load_notes

        texts = sentences(answer.found, with_tips=False)
        before = 1 + len(unsteady_capacity_notes(answer.found.capacities))
        return [
            *texts[:before],
            *hours_sentences(answer.found, answer.scenario),
            "",
            *self.tables(answer),
            "",
            *texts[before:],
            *(part for one in tipping_limits(answer.found) for part in ("", one)),
            "",
            *filter(None, [inputs_without_effect(answer.found), *left_out(answer.found)]),
            *load_notes(answer.scenario),
            *rate_notes(answer.scenario),
            *owned_peaks(answer.found, answer.scenario),
            *capacity_notes(answer.found.capacities, answer.scenario.precision),
            *notes,
            Message("results in {folder}", folder),
        ]

    def caveats(self, answer: Answered) -> Sequence[str]:
        from sim.report.breakeven import left_out, owned_peaks
        from sim.report.words.precision import capacity_notes

        inexact = capacity_notes(answer.found.capacities, answer.scenario.precision)
        return [*left_out(answer.found), *owned_peaks(answer.found, answer.scenario), *inexact]

    def charts(self, answer: Answered, question: str, headline: str) -> Charts:
        from sim.report.breakeven import key, panels

        return _charts_of(panels(answer.found), question, headline, key(answer.found))

    def unable(self, found: Any) -> Mapping[str, str]:
        return {one.fleet: one.reason for one in found.capacities}


class _Plan(RepeatableQuestion):
    """Plan what to buy, replace or rent, month by month.

    Also show the cash.

    The scenario's section `plan` gives demand, orders and terms.
    """

    name = "plan"
    main = "summary"
    sheets = (("Months", "plan"), ("Variances", "variances"), *FINANCING)
    relative_option = yearly = True

    def why_not(self, scenario: Any) -> Iterable[str]:
        from sim.study.capacity import why_no_capacity
        from sim.study.plan import why_no_plan

        return [why_no_plan(scenario) or why_no_capacity(scenario)]

    def measure(self, task: Task) -> Any:
        from sim.report.progress import CaseProgress
        from sim.study.capacity import capacities
        from sim.study.execution.cases import discard_partial
        from sim.study.plan import part_loads

        try:
            with CaseProgress(task.quiet, "searching capacities", "searches") as progress:
                most = capacities(
                    task.scenario, *task.study_arguments, task.relative, progress, task.scenario.precision
                )
            with CaseProgress(task.quiet, later_stage=True) as progress:
                return most, part_loads(task.scenario, task.catalog, most, task.out, task.workplace, progress)
        finally:
            discard_partial(task.workplace, task.out)

    def evaluate(self, scenario: Any, catalog: Any, measured: Any) -> Any:
        from sim.study.plan import outlooks

        return outlooks(scenario, catalog, *measured)

    def remarks(self, scenario: Any) -> Sequence[str]:
        from sim.report.plan import plan_rate_notes
        from sim.report.words.service_level import load_notes

        return [*load_notes(scenario), *plan_rate_notes(scenario)]

    def write(self, folder: Path, answer: Answered, with_pictures: bool) -> None:
        from sim.report.plan import write_plan

        write_plan(folder, answer.scenario, answer.found, answer.resolved, answer.remarks, with_pictures)

    def document(self, answer: Answered, out: str) -> dict[str, Any]:
        from sim.report.plan import plan_document

        return plan_document(answer.scenario, answer.found, out)

    def tables(self, answer: Answered) -> Sequence[Any]:
        from sim.report.plan_tables import plan_table

        return [plan_table(answer.found)]

    def lines(self, answer: Answered, notes: Sequence[str], folder: Path) -> Iterable[Any]:
        from sim.report.plan import verdict_of_plan

        remarks, verdict = self.remarks(answer.scenario), verdict_of_plan(answer.scenario, answer.found)
        sentences = [*verdict.findings, *remarks, *notes]
        return [verdict.headline, "", *self.tables(answer), "", *sentences, Message("results in {folder}", folder)]

    def charts(self, answer: Answered, question: str, headline: str) -> Charts:
        draw = partial(_draw_plan, answer.found, answer.scenario.plan, answer.axis.label, question, headline)
        return ["plan"] if any(one.rows for one in answer.found) else [], draw

    def unable(self, found: Any) -> Mapping[str, str]:
        return {one.fleet: one.capacity.reason for one in found if not one.api}


QUESTIONS: dict[str, Question] = {
    one.name: one for one in (_Capacity(), _Sensitivity(), _Size(), _Breakeven(), _Plan())
}
"""Name -> question, in the order of the commands; a new question is added here."""


def _charts_of(panels: Sequence[Any], question: str, headline: str, key: Any) -> Charts:
    return [one.kind for one in panels], partial(_draw_panels, panels, question, headline, key)


def _draw_panels(panels: Sequence[Any], question: str, headline: str, key: Any, name: str) -> Any:
    from sim.report.charts.picture import panel_picture

    return panel_picture([one for one in panels if name in ("", one.kind)], question, [headline], key)


def _draw_capacity(found: Any, rows: Any, axis: Any, slo: Any, question: str, headline: str, _name: str) -> Any:
    from sim.report.capacity_charts import capacity_picture

    return capacity_picture(found, rows, axis, slo, question, headline)


def _draw_sensitivity(found: Any, question: str, headline: str, name: str) -> Any:
    from sim.report.charts.picture import picture
    from sim.report.sensitivity import charts

    chosen = [chart for kind, several in charts(found).items() if name in ("", kind) for chart in several]
    return picture(chosen, question, [headline])


def _draw_plan(found: Any, plan: Any, label: str, question: str, headline: str, _name: str) -> Any:
    from sim.report.plan_charts import plan_picture

    return plan_picture(found, plan, label, question, headline)
