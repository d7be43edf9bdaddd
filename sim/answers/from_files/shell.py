"""Words of shell commands with their lines: quotes, continuation lines, comments, variables."""

import ast
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

OPERATORS = ";&|<>()"
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}
ARITHMETIC = re.compile(r"\$\(\(([\w\s+*/%()${}:-]*)\)\)")
"""Pattern of $((expression)) of whole numbers and variables."""
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\}|\((\w+)\))")
"""Pattern of $NAME, ${NAME}, ${NAME:-default} and, in manifests, $(NAME)."""


@dataclass(frozen=True, slots=True)
class Word:
    """Word of a command."""

    text: str
    line: int
    """Line of its first character, counted from 1."""


@dataclass(slots=True)
class Command:
    """Command of a script, with the variables that are set for it."""

    words: list[Word]
    variables: dict[str, str] = field(default_factory=dict)


def commands_in(text: str, first_line: int = 1) -> list[Command]:
    """Return the commands of the script *text*, variables replaced by what the script sets them to."""
    known: dict[str, str] = {}
    found = []
    for words in _split(text, first_line):
        own: dict[str, str] = {}
        rest = list(words)
        while rest and (pair := ASSIGNMENT.fullmatch(rest[0][0].text)):
            own[pair[1]] = expanded(pair[2], known)
            rest.pop(0)
        if rest and rest[0][0].text in ("export", "declare", "readonly", "local"):
            for word, _ in rest[1:]:
                if pair := ASSIGNMENT.fullmatch(word.text):
                    own[pair[1]] = expanded(pair[2], known)
            rest = []
        if not rest:
            known |= own
        else:
            ready = [Word(one.text if literal else expanded(one.text, known), one.line) for one, literal in rest]
            found.append(Command(ready, known | own))
    return found


def expanded(text: str, known: Mapping[str, str]) -> str:
    """Return *text* with its variables replaced by their values; unknown variables stay.

    >>> expanded("${MODEL}-$SIZE ${TP:-4} $(MODEL)", {"MODEL": "llama"})
    'llama-$SIZE 4 llama'
    >>> expanded("$((NODES * ${GPUS:-8}))", {"NODES": "2"})
    '16'
    """

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[4]
        if name in known:
            return known[name]
        return match[3] if match[3] is not None else match[0]

    def computed(match: re.Match[str]) -> str:
        names = re.compile(r"\$?\b([A-Za-z_]\w*)")
        text = names.sub(lambda name: known.get(name[1], name[0]), VARIABLE.sub(value, match[1]))
        try:
            return str(_result(ast.parse(text.strip().replace("/", "//"), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError):
            return match[0]

    return VARIABLE.sub(value, ARITHMETIC.sub(computed, text))


def _result(node: ast.AST) -> int:
    """Return the value of an expression of whole numbers. Raises ValueError for any other."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
        return int(SIGNS[type(node.op)](_result(node.left), _result(node.right)))
    raise ValueError


def _split(text: str, first_line: int) -> Iterator[list[tuple[Word, bool]]]:
    """Yield the commands of *text* as (word, whether it is in single quotes)."""
    words: list[tuple[Word, bool]] = []
    current: list[str] | None = None
    literal, redirected = False, False
    line = started = first_line
    place = 0

    def end_word() -> None:
        nonlocal current, literal, redirected
        if current is not None and not redirected:
            words.append((Word("".join(current), started), literal))
        redirected = redirected and current is None
        current, literal = None, False

    while place < len(text):
        sign = text[place]
        if sign == "\\" and place + 1 < len(text):
            if text[place + 1 : place + 3] == "\r\n":
                place += 1
            if text[place + 1] != "\n":
                if current is None:
                    current, started = [], line
                current.append(text[place + 1])
            line += text[place + 1] == "\n"
            place += 2
            continue
        if sign in "'\"":
            if current is None:
                current, started = [], line
            literal = literal or sign == "'"
            place += 1
            while place < len(text) and text[place] != sign:
                if sign == '"' and text[place] == "\\" and text[place + 1 : place + 2] in ('"', "\\", "$", "\n"):
                    place += 1
                current.append(text[place])
                line += text[place] == "\n"
                place += 1
        elif sign == "#" and current is None:
            while place + 1 < len(text) and text[place + 1] != "\n":
                place += 1
        elif sign == "$" and text[place + 1 : place + 2] in ("{", "("):
            if current is None:
                current, started = [], line
            end = "))" if text[place : place + 3] == "$((" else "}" if text[place + 1] == "{" else ")"
            closing = text.find(end, place)
            closing = len(text) - 1 if closing < 0 else closing + len(end) - 1
            current.append(text[place : closing + 1])
            place = closing
        elif sign in " \t\r":
            end_word()
        elif sign == "\n" or sign in OPERATORS:
            if sign in "<>" and current is not None and "".join(current).isdigit():
                current = None
            end_word()
            redirected = sign in "<>" or (redirected and sign == "&")
            if sign not in "<>" and not redirected and words:
                yield words
                words = []
            line += sign == "\n"
        else:
            if current is None:
                current, started = [], line
            current.append(sign)
        place += 1
    end_word()
    if words:
        yield words
