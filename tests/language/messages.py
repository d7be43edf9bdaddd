"""Every message of the program, from its source: what `make language` writes into the catalogues and a test checks.

A message with values is the template of a `sim.message.Message`, or stands in a call of `_`, `ngettext` or `N_`; one
without values is, below the report, any text with a blank between two words that is no docstring. What people read of
the command line and of tables declared as data is asked for as it is.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import typer
from babel.messages.extract import extract

from sim.cli import app
from sim.cli.help import texts
from sim.cost.operations import Operations
from sim.language.sentences import LEAST
from sim.message import parsed
from sim.study.metrics.columns import COLUMNS

ROOT = Path(__file__).resolve().parents[2]
MARKED = ("report",)
"""Packages whose messages are marked; of all others every sentence counts."""
OF_METRICS = tuple(f"sim/study/metrics/{name}.py" for name in ("metric", "requests", "machines", "bill"))
NEVER = {
    "sim/scenario/template.py",
    "sim/answers/from_files/text.py",
    "sim/answers/from_files/manifest_keys.py",
    "sim/language",
    *OF_METRICS,
}
"""Text and keys of files, and descriptions of metrics."""
KEYWORDS: dict[str, Any] = {"_": None, "N_": None, "ngettext": (1, 2)}
WORDS = re.compile(r"[A-Za-z]{2,}[^A-Za-z\n]{0,2} [A-Za-z({]|\} [a-z]{2,}|[a-z]{2,} \{|[a-z]{2,}: ?\{")
TECHNICAL = re.compile(r"\\|charset|default-src|filename\*|^<| \| None$|^%s ")
"""Patterns, headers, types."""
NOT_READ = (
    "Column",
    "JobColumn",
    "QueueColumn",
    "Field",
    "compile",
    "match",
    "fullmatch",
    "sub",
    "search",
    "getLogger",
    "execute",
    "executemany",
    "deprecated",
)
"""Calls whose texts are not sentences for readers: descriptions in the JSON schema, patterns, SQL."""
NO_SENTENCES = frozenset(
    # names of random streams, keys of files, sources, values and headers
    {"drafts of {}", "failures: {}", "futures {}", "request {}", "session {}"}
    | {"scenario: {}", "scenario: cost.quotes.{}", "NVIDIA {}", "{} loaded", "{} saturated"}
    | {"{} {} clients", "kvRole: role {}"}
    | {"--set slo.{}", "{}={}; Path=/; HttpOnly; SameSite=Strict", "replica {}", "prompt, {} tokens", "goodput {}"}
    | {"{}, {}, gpufleet {}", "Bearer {}", "{}, paid at delivery", "{}/{}/{}, at delivery", "PCIe {}.0 x{} ── GPU {}"}
    # sources of prices in a catalogue folder, and of kernel rates
    | {"{}: {} an hour for {} GPUs", "{}, GPU alone", "{} price list ({})"}
    | {"data/kernels/measured.csv: {} of {} {} on {}"}
    # commands, expressions of Vega, a sentence that was translated
    | {"capacity {}", "sensitivity {}", "breakeven {}", "export {}", "gpufleet: {}"}
    | {"datum.good ? {} : paper", "datum.good ? ({}) : paper", "{} / max(width - {} - {}, width / 4)"}
    | {"datum.value ? {} + format(datum.value / 1000, ',.6~r') + 'k' : {} + '0'"}
    # errors of the program itself
    | {"module {} has no attribute {}", "replica {} is {} and cannot be {} next"}
    | {"the engine of replica {} keeps requests from the first token to the last"}
)
"""F-strings that read like sentences and are none, their places empty."""


UNREAD_FIELDS = {"annotation", "returns", "ctx", "op", "ops"}


@dataclass(frozen=True)
class Message:
    text: str
    plural: str
    place: str
    """File and line."""


def parts(file: Path, holding: str) -> Iterator[ast.Module]:
    """Yield the syntax trees of the statements in *file* in which the pattern *holding* matches; all take seconds."""
    line = 0
    for part in re.split(r"\n\n\n(?=\S)", file.read_text()):  # as ruff sets apart functions and classes of a module
        if re.search(holding, part):
            yield ast.parse("\n" * line + part)
        line += part.count("\n") + 3


def messages() -> Iterator[Message]:
    """All of them, in the order of their files."""
    for file in sorted((ROOT / "sim").rglob("*")):
        name = file.relative_to(ROOT).as_posix()
        if any(name.startswith(never) for never in NEVER) or not file.is_file():
            continue
        if file.suffix == ".py":
            marked_only = file.relative_to(ROOT).parts[1] in MARKED
            yield from _of_code(ast.parse(file.read_text()), name, marked_only)
        elif file.suffix in (".j2", ".js"):
            yield from _marked(file, name, "jinja2.ext:babel_extract" if file.suffix == ".j2" else "javascript")
    yield from _of_commands()
    yield from _of_tables()


@cache
def found() -> dict[str, Message]:
    """Each of them once, by its English text, where it has any words."""
    return {one.text: one for one in messages() if one.text.strip()}


def _marked(file: Path, name: str, method: str) -> Iterator[Message]:
    """Yield the marked texts of templates and scripts, found by Babel."""
    text = file.read_bytes()
    if not re.search(rb"\b(_|N_|ngettext)\(", text):
        return
    options = {"trim_blocks": "true", "lstrip_blocks": "true"} if file.suffix == ".j2" else {}
    for line, found, _, _ in extract(method, BytesIO(text), keywords=KEYWORDS, options=options):
        one, several = found if isinstance(found, tuple) else (found, "")
        yield Message(one, several, f"{name}:{line}")


def _of_code(tree: ast.AST, name: str, marked_only: bool) -> Iterator[Message]:
    """Yield the marked texts of a module and, unless *marked_only*, its other sentences."""
    left: list[Any] = [tree]
    while left:
        node = left.pop()
        if not isinstance(node, ast.AST):  # the key of **more, a name
            continue
        kind = type(node)
        if kind is ast.Call:
            called = _called(node)
            if called == "Message" and node.args and isinstance(node.args[0], ast.Constant):
                text = parsed(node.args[0].value)[0]
                if re.search("[A-Za-z]", re.sub(r"\{\w+\}", "", text)):
                    yield Message(text, "", f"{name}:{node.lineno}")
                left += node.args[1:]
                continue
            if called in KEYWORDS and node.args:
                yield from _marked_in(node, f"{name}:{node.lineno}")
                left += [one for one in (*node.args, *node.keywords) if not isinstance(one, ast.Constant)]
                continue
            if called in NOT_READ:
                continue
        elif kind is ast.JoinedStr:
            left += [one.value for one in node.values if isinstance(one, ast.FormattedValue)]
            continue
        elif kind is ast.Constant:
            if not marked_only and isinstance(node.value, str) and _is_sentence(node.value):
                yield Message(node.value, "", f"{name}:{node.lineno}")
            continue
        elif kind is ast.Expr and isinstance(node.value, ast.Constant):
            continue
        for field in node._fields:
            if field not in UNREAD_FIELDS:
                below = getattr(node, field)
                left += below if isinstance(below, list) else [below] if isinstance(below, ast.AST) else []


def _marked_in(node: ast.Call, place: str) -> Iterator[Message]:
    given = [one.value if isinstance(one, ast.Constant) else None for one in node.args[:2]]
    if isinstance(given[0], str):
        plural = given[1] if _called(node) == "ngettext" and isinstance(given[1], str) else ""
        yield Message(given[0], plural, place)


def _is_sentence(text: str) -> bool:
    if " " not in text or "\n" in text or TECHNICAL.search(text) or not WORDS.search(text):
        return False
    return len(re.findall("[A-Za-z]", re.sub(r"\{\w+\}", "", text))) >= LEAST


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def bare_sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of each f-string that is a sentence, its places empty; a `Message` would keep its template."""
    left: list[Any] = [tree]
    while left:
        node = left.pop()
        if (isinstance(node, ast.Call) and _called(node) in NOT_READ) or isinstance(node, ast.Assert):
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            if _is_sentence(text):
                yield node.lineno, text
        left += ast.iter_child_nodes(node)


def _of_commands() -> Iterator[Message]:
    for text in texts(typer.main.get_command(app)):
        yield Message(text, "", "gpufleet --help")


def _of_tables() -> Iterator[Message]:
    for column in COLUMNS:
        for head in (column.head, column.brief, column.sheet):
            if head.strip():
                yield Message(head, "", "sim/study/metrics")
    for name in Operations.model_fields:
        yield Message(name.replace("_", " "), "", "sim/cost/operations.py")
