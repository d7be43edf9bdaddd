"""Tables that fit the terminal: columns without room continue in further tables below."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sim.language import _
from sim.report.words.units import counted

GAP = 2
"""Number of blanks between columns."""
MOST_HEAD_LINES = 3
INDENT = 4
WRAPPED_FROM = 24
"""Width from which a cell may take several lines, divided at blanks."""
NARROW_FROM = 10
"""Width from which a cell of words may take several lines in a table that is not divided."""
FOLDED_FROM = 16
"""Width from which a word may be divided in a table that is not divided itself."""


CLOSING = "，。；：、！？）》”"
"""Chinese punctuation that never begins a line."""

_WORDS = rf"\s+|[\u2e80-\uffef][{CLOSING}]*|[^\s\u2e80-\uffef]+[{CLOSING}]*"
_ASCII_WORDS = r"\s+|\S+"
"""Pattern of the same words in ASCII text, which takes less time to compile."""


def folded(text: str, width: int) -> list[str]:
    """Return the lines of *text*, each at most *width* columns wide; further lines of a sentence are indented.

    Chinese is divided between any two characters. A path or an address that is wider than a line is not divided.

    >>> folded("results in /a/long/path and more", 16)
    ['results in', '  /a/long/path', '  and more']
    """
    lines = []
    for paragraph in text.split("\n"):
        line, indent = "", paragraph[: len(paragraph) - len(paragraph.lstrip())]
        for word in re.findall(_ASCII_WORDS if paragraph.isascii() else _WORDS, paragraph):
            if line.strip() and cell_len(line) + cell_len(word.rstrip()) > width:
                lines.append(line.rstrip())
                line = f"{indent}  "
                if word.isspace():
                    continue
            if word.isspace() and line and not line.strip():
                continue
            line += word
        lines.append(line.rstrip())
    return lines


@dataclass(frozen=True, slots=True)
class Sentence:
    """Text beside tables, folded to the width of the terminal."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the text."""
        yield Text("\n".join(folded(self.text, options.max_width)))


@dataclass(frozen=True, slots=True)
class FittedTable:
    """Table of text under headings, divided into several tables where it is wider than the terminal.

    Figures are never cut: columns without room go to a further table below, which repeats the first columns.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    worded: frozenset[int] = frozenset({0})
    """Columns of words, left-aligned and wrapped; all others are right-aligned."""
    repeated: int = 1
    """Number of leading columns that name the row."""
    styles: Sequence[str | None] = ()
    """Style of each row; None: plain."""
    title: str = ""
    optional: Sequence[int] | None = None
    """Columns to leave out, in this order, where the table is wider than the terminal; None: it is divided instead."""

    def __post_init__(self) -> None:
        """Translate the headings and insert the unit of work (requests or images)."""
        object.__setattr__(self, "heads", tuple(counted(_(head)) for head in self.heads))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the tables for the available width."""
        if self.title:
            yield Text(self.title, style="bold")
        for index, columns in enumerate(self._parts(options.max_width)):
            if index:
                yield Text()
            yield self._table(columns, options.max_width)

    def _parts(self, width: int) -> list[list[int]]:
        """Return the columns of each table: the fewest tables possible, of about the same width."""
        if self.optional is not None and (kept := self._kept(width)):
            return [kept]
        front = list(range(self.repeated))
        rest = range(self.repeated, len(self.heads))
        taken = sum(self._least_width(column) + GAP for column in front)
        fewest = len(_packed([self._least_width(column) for column in rest], width - taken))
        for room in range(1, width - taken + 1):
            parts = _packed([self._least_width(column) for column in rest], room)
            if len(parts) == fewest:
                break
        else:
            parts = _packed([self._least_width(column) for column in rest], width - taken)
        return [[*front, *(self.repeated + place for place in part)] for part in parts] or [front]

    def _kept(self, width: int) -> list[int]:
        """Return the columns of an undivided table without as many optional ones as needed; empty if none fits."""
        left_out = list(self.optional or ())
        # in this order: optional columns are left out, names wrap, further columns are left out
        for narrow, count in ((False, 0), (False, 1), *((True, count) for count in range(len(left_out) + 1))):
            kept = [column for column in range(len(self.heads)) if column not in left_out[:count]]
            if sum(self._least_width(column, narrow) + GAP for column in kept) - GAP <= width:
                return kept
        return []

    def _table(self, columns: Sequence[int], width: int) -> Table:
        widths = {column: self._least_width(column) for column in columns}
        spare = width - sum(widths.values()) - GAP * (len(columns) - 1)
        by_need = sorted(columns, key=lambda one: (one not in self.worded, self._widest(one) - widths[one]))
        wanted = [(column, self._longest_word(column)) for column in by_need if column in self.worded]
        for column, most in (*wanted, *((one, self._widest(one)) for one in by_need)):  # whole words before whole cells
            more = max(0, min(spare, most - widths[column]))
            widths[column] += more
            spare -= more
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(
                Text("\n".join(_lines(self.heads[column], widths[column]))),
                justify="left" if column in self.worded else "right",
                width=widths[column],
                overflow="fold",
                vertical="top",
            )
        for index, row in enumerate(self.rows):
            style = self.styles[index] if index < len(self.styles) else None
            cells = [_cell(row[column], widths[column]) for column in columns]
            table.add_row(*(Text(cell, overflow="fold") for cell in cells), style=style)
        return table

    def _widest(self, column: int) -> int:
        """Return the width at which no cell wraps; the heading may."""
        return max(_cells_width(self.rows, column), self._head_width(column))

    def _least_width(self, column: int, narrow: bool = True) -> int:
        """Return the least width in which no figure is cut; *narrow* wraps short words in an undivided table."""
        widest = _cells_width(self.rows, column)
        if narrow and self.optional is not None and column in self.worded:
            widest = min(widest, max(NARROW_FROM, min(FOLDED_FROM, self._longest_word(column))))
        elif widest > WRAPPED_FROM:
            words = (cell_len(word) for row in self.rows for word in row[column].replace("\n", " ").split(" "))
            widest = max(WRAPPED_FROM, *(0 if column in self.worded else word for word in words))
        return max(widest, self._head_width(column))

    def _longest_word(self, column: int) -> int:
        return max((cell_len(word) for row in self.rows for word in row[column].split()), default=0)

    def _head_width(self, column: int) -> int:
        head = self.heads[column]
        width = max((cell_len(word) for word in head.split(" ")), default=0)
        while len(_lines(head, width)) > MOST_HEAD_LINES:
            width += 1
        return width


def _cells_width(rows: Sequence[Sequence[str]], column: int) -> int:
    return max((cell_len(line) for row in rows for line in row[column].split("\n")), default=0)


def _packed(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the indices of *widths* in lines of width *room*, at least one in each line."""
    parts: list[list[int]] = []
    taken = 0
    for place, width in enumerate(widths):
        if not parts or taken + GAP + width > room:
            parts.append([])
            taken = -GAP
        parts[-1].append(place)
        taken += GAP + width
    return parts


def _cell(text: str, width: int) -> str:
    """Return *text* with its lines divided at blanks; a name that is wider than *width*, after its hyphens.

    Text with other than ASCII characters is left to the table, which divides a long Chinese word anywhere.
    """
    if not text.isascii():
        return text
    lines = []
    for paragraph in text.split("\n"):
        if len(paragraph) <= width:
            lines.append(paragraph)
            continue
        lines.append("")
        for word in paragraph.split(" "):
            blank = " " if lines[-1] else ""
            for part in [word] if len(word) <= width else re.findall("[^-]+-*|-+", word):
                if lines[-1] and len(lines[-1] + blank + part) > width:
                    lines.append("")
                    blank = ""
                lines[-1] += blank + part
                blank = ""
    return "\n".join(lines)


def _lines(text: str, width: int) -> list[str]:
    return wrap(text, max(1, width), break_long_words=False, break_on_hyphens=False)


@dataclass(frozen=True, slots=True)
class ListEntry:
    """List item: a name, a text beside it, and indented paragraphs below."""

    name: str
    text: str
    below: Sequence[str] = ()
    """Paragraphs below; an address stays on one line, so that it can be copied."""


@dataclass(frozen=True, slots=True)
class EntryList:
    """Named values, each with its source below it."""

    title: str
    entries: Sequence[ListEntry]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the entries, names in a column as wide as the longest name or half the available width."""
        if self.title:
            yield Text(f"\n{self.title}", style="bold")
        names = [cell_len(one.name) for one in self.entries]
        width = min(max(names, default=0), (options.max_width + 2 * INDENT) // 2)
        for one in self.entries:
            grid = Table.grid(padding=(0, GAP, 0, 0))
            grid.add_column(width=width, overflow="fold")
            grid.add_column(width=options.max_width - width - GAP, overflow="fold")
            grid.add_row(Text(one.name), Text(one.text))
            yield grid
            for paragraph in one.below:
                if paragraph.startswith("http"):  # inside a Padding, an address would be cut at the edge
                    yield Text(f"{'':{INDENT}}{paragraph}", style="dim", no_wrap=True, overflow="ignore")
                else:
                    yield Padding(Text(paragraph, style="dim", overflow="fold"), (0, 0, 0, INDENT), expand=False)
