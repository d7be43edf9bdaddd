"""Base class of results: a verdict, a table, figures, and the folder with the files of the answer."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd

from sim.answers.folder import manifest_of
from sim.api.errors import Infeasible
from sim.api.prepared import Prepared
from sim.message import Message
from sim.report.charts.chart import Chart
from sim.report.charts.fonts import drawable
from sim.report.charts.picture import for_paper
from sim.report.export.stored_answer import read_table
from sim.report.page.page import notebook_html
from sim.report.terminal_table import FittedTable
from sim.report.words.money import showing
from sim.report.words.units import counted
from sim.scenario.schema import Scenario
from sim.validation import did_you_mean

Draw = Callable[[str], Chart]
"""Function from the kind of a chart (empty: all) to its picture. Results are pickled, so it is no closure."""

STYLES = ("paper",)
COLUMN_IN, LEAST_IN, MOST_IN = 3.3, 2.5, 10.0
"""Width of a figure for a paper [inch]: that of a column, the least and the greatest."""


class Result:
    """Answer to a question about a scenario. A notebook shows its verdict, table and picture.

    `verdict` is the answer in a sentence or two, `findings` qualify it, `table` has the figures behind it, one row per
    candidate, with units in the names of the columns. `folder` holds the files that the command of the same name
    writes; without `out=` it is temporary and removed with the last reference to the answer. A pickled answer includes
    the files of a temporary folder.
    """

    _main = ""
    """Name of the file with the table."""

    def __init__(
        self,
        prepared: Prepared,
        document: Mapping[str, Any],
        tables: Sequence[FittedTable],
        charts: Sequence[str],
        draw: Draw,
    ) -> None:
        self.scenario: Scenario = prepared.scenario
        """Scenario as simulated: checked, with the values of `set`."""
        self.verdict: str = document["verdict"]["headline"]
        with showing(self.scenario):
            notes = map(counted, document.get("notes", ()))
            self.findings: tuple[str, ...] = (*document["verdict"]["findings"], *notes)
        self.plots: tuple[str, ...] = tuple(dict.fromkeys(charts))
        """Kinds of charts that `plot` can draw."""
        self._prepared, self._tables, self._draw = prepared, tables, draw
        self._frames: dict[str, pd.DataFrame] = {}
        self._question = _question_in(prepared.out)

    def _refuse_unable(self, reasons: Mapping[str, str]) -> None:
        """Raise Infeasible if no fleet can run; *reasons* maps fleets to reasons, empty for a fleet that can run."""
        if all(reasons.values()):
            texts = dict.fromkeys(
                Message("fleets.{fleet}: {reason}", fleet, reason) for fleet, reason in reasons.items()
            )
            raise Infeasible(map(str, self._prepared.errors(texts)), self)

    @property
    def folder(self) -> Path:
        """Folder with the files of the answer."""
        return self._prepared.out

    @property
    def table(self) -> pd.DataFrame:
        """Figures behind the verdict, one row per candidate, with units in the names of the columns."""
        return self._frame(self._main)

    def _frame(self, file: str) -> pd.DataFrame:
        """Return the table in *file*; empty where the question has no such table."""
        if file not in self._frames:
            path = self._answered() / file
            self._frames[file] = read_table(path) if path.exists() else pd.DataFrame()
        return self._frames[file]

    def _answered(self) -> Path:
        """Return the folder. Raises FileNotFoundError where it no longer holds this answer."""
        if not self.folder.is_dir():
            raise FileNotFoundError(Message("{folder}: the folder of this answer no longer exists", self.folder))
        if _question_in(self.folder) != self._question:
            raise FileNotFoundError(
                Message("{folder}: the folder now holds the answer to another question", self.folder)
            )
        return self.folder

    def plot(self, name: str | None = None, style: str | None = None, width_in: float = COLUMN_IN) -> Chart:
        """Draw the charts of kind *name* (one of `plots`), or all of them; `save` of the result writes PNG, SVG or PDF.

        Parameters
        ----------
        name
            Kind of the charts; None: all.
        style
            "paper": a figure for a paper, without question and verdict, with a legend, labelled axes and line styles
            that differ in black and white. None: question and verdict above the charts.
        width_in
            Width of a figure for a paper [inch]: 3.3 for a column, 7 for a page.

        Raises
        ------
        ValueError
            For a name that is not among `plots`, where there are none, and for an unknown style or width.

        """
        if style not in (None, *STYLES):
            raise ValueError(
                Message("style={style!r}: there is no such style{hint}", style, did_you_mean(str(style), STYLES))
            )
        if style and not LEAST_IN <= width_in <= MOST_IN:
            raise ValueError(
                Message("width_in={width!r}: a figure is {low:g} to {high:g} inches wide", width_in, LEAST_IN, MOST_IN)
            )
        if name and name not in self.plots:
            raise ValueError(Message("there is no plot {name!r} here{hint}", name, did_you_mean(name, self.plots)))
        if not self.plots:
            raise ValueError(Message("there is nothing to plot: {verdict}", self.verdict))
        with showing(self.scenario), drawable(), for_paper(width_in) if style else nullcontext():
            return self._draw(name or "")

    def _repr_html_(self) -> str:
        picture = self.plot() if self.plots else None
        with showing(self.scenario):
            return notebook_html(self.scenario.name, self.verdict, self.findings, self._tables, picture)

    def __repr__(self) -> str:
        return f"<sim.{type(self).__name__} {self.scenario.name}: {self.verdict}>"

    def __str__(self) -> str:
        return "\n".join([self.verdict, *(f"- {finding}" for finding in self.findings)])


def _question_in(folder: Path) -> Any:
    """Return the question that the answer in *folder* belongs to; None without an answer."""
    return (manifest_of(folder) or {}).get("question")
