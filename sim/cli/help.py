"""Help of the commands in languages other than English: texts, headings, and lines broken after ideographs."""

import re
from collections.abc import Sequence
from typing import Any
from unicodedata import east_asian_width

from sim.language import N_, _, translate_rendered

HEADINGS = (
    *(N_("Usage: "), N_("Arguments"), N_("Options"), N_("Commands"), N_("Show this message and exit.")),
    *(N_("[default: {value}]"), N_("[required]")),
)
"""Words of the library that writes the help."""
PROBLEMS = (
    *(N_("No such option: {name}"), N_("No such option: {name} (Possible options: {names})")),
    *(
        N_("No such option: {name} Did you mean {other}?"),
        N_("No such command {name}."),
        N_("Missing argument {name}."),
    ),
    *(N_("Invalid value for {name}: {problem}"), N_("Option {name} requires an argument.")),
    *(N_("Got unexpected extra argument ({name})"), N_("Got unexpected extra arguments ({names})")),
    *(N_("{value} is not a valid integer."), N_("{value} is not a valid float."), N_("{value} is not one of {names}.")),
    *(N_("{value} is not in the range {range}."), N_("Missing option {name}.")),
)
"""Messages of that library about a wrong command line."""


def translate_help(command: Any) -> None:
    """Translate the help of *command* and its subcommands."""
    command.help, command.epilog = _one_line(command.help), _one_line(command.epilog)
    if command.help and "\u3002" in command.help:
        command.short_help = command.help.partition("\u3002")[0]
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = _(parameter.help)
    plain = command.context_class.formatter_class
    formatter = type("Formatter", (_Wide, plain), {})
    command.context_class = type("Context", (command.context_class,), {"formatter_class": formatter})
    for below in getattr(command, "commands", {}).values():
        translate_help(below)


def texts(command: Any) -> list[str]:
    """Return every text of the help of *command* and its subcommands, in English."""
    found = [_one_line(command.help), command.epilog, *(getattr(one, "help", None) for one in command.params)]
    for below in getattr(command, "commands", {}).values():
        found += texts(below)
    return [text for text in found if text]


def _one_line(text: str | None) -> str | None:
    return _(" ".join(text.split())) if text else text


class _Wide:
    """Mixin of the help formatter for characters that take two columns."""

    width: int
    current_indent: int

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage line."""
        super().write_usage(prog, args, _("Usage: "))  # type: ignore[misc]

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        self.write(f"{_(heading)}{_(': ')}".rstrip() + "\n")

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        indent = " " * self.current_indent
        for line in _lines(text, self.width - self.current_indent):
            self.write(f"{indent}{line}\n")

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of names, each with its text beside it."""
        left = min(max((len(name) for name, *_rest in rows), default=0), col_max) + col_spacing
        for name, text in rows:
            sentences = [part for part in re.split(r"  (?=\[)", text) if part]
            lines = _lines("  ".join(map(translate_rendered, sentences)), max(self.width - left - 2, 10)) or [""]
            if len(name) > left - col_spacing:
                self.write(f"{'':{self.current_indent}}{name}\n")
                name = ""
            for line in lines:
                self.write(f"{'':{self.current_indent}}{name:{left}}{line}".rstrip() + "\n")
                name = ""

    def write(self, text: str) -> None:
        """Append *text* to the help."""
        super().write(text)  # type: ignore[misc]


CLOSING = "，。；：、）"
"""Marks that begin no line."""


def _lines(text: str, width: int) -> list[str]:
    """Divide *text* into lines of at most *width* columns that end at blanks or after ideographs.

    A closing mark may stand in the two columns beyond them.
    """
    lines, now, columns = [], "", 0
    for piece in re.findall(rf"(?:[\u2e80-\uffef]|[^\s\u2e80-\uffef]+)[{CLOSING}]*|\s+", text):
        size = sum(1 + (east_asian_width(character) in "WF") for character in piece)
        if now and columns + size > width + 2 * (piece[-1] in CLOSING):
            lines.append(now.rstrip())
            now, columns = "", 0
        if now or piece.strip():
            now, columns = now + piece, columns + size
    return [*lines, now.rstrip()] if now.strip() else lines
