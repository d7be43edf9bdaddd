"""Rendering of pages from jinja2 templates."""

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, cast

from sim.language import ENGLISH, LANGUAGES, _, current, translate_rendered
from sim.report.charts.vega_lite import on_black
from sim.report.page.kept_templates import KeptTemplates
from sim.report.words.text import number, ranged
from sim.report.words.units import counted, noun

TEMPLATES = Path(__file__).parents[1]
"""Root of the templates; each lies beside the module that fills it."""
PROGRAM = "/* the program that draws the charts */"
"""Placeholder of the drawing program, which is inserted after the words of the page are settled."""
SCRIPT = Path(__file__).with_name("page.js")
_MARKED = re.compile(r'\b(?:_\(|ngettext\("[^"]+", )"([^"]+)"')
"""Pattern of the messages in a script; it yields the plural of messages with a plural."""


def render(template: str, /, **values: Any) -> str:
    """Render *template*, a path below `sim/report` or `sim`, with *values*; the same values give the same bytes.

    Raises jinja2.UndefinedError where the template names a value that is not given.
    """
    text = counted(_environment().get_template(template).render(**values))
    drawn = values.get("drawn")
    return text if drawn is None else text.replace(PROGRAM, drawn.bundle)


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, TEMPLATES.parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=cast("Any", KeptTemplates()),
    )
    environment.filters["number"] = number
    environment.filters["tint"] = lambda color: f"--light:{color};--dark:{on_black(color)}"
    environment.globals |= {"noun": noun, "translate": translate_rendered, "ranged": ranged, "_": _translated}
    environment.globals |= {"language": lambda: LANGUAGES[current()], "words": lambda: words_of([SCRIPT])}
    environment.globals["script_json"] = script_json
    environment.globals["page_script"] = lambda: SCRIPT.read_text(encoding="utf-8")
    return environment


def _translated(message: str, /, **values: Any) -> Any:
    """Translate a message of a template, which is HTML, and insert *values*, which are text."""
    from jinja2.utils import markupsafe  # type: ignore[attr-defined]  # what jinja2 escapes with

    text = markupsafe.Markup(_(message))  # messages are trusted: they are only in templates and catalogues
    return text.format(**values) if values else text


def words_of(scripts: Iterable[Path]) -> dict[str, str]:
    """Return the translations of the messages in *scripts*: English text -> text; empty for English."""
    if current() == ENGLISH:
        return {}
    return {text: _(text) for file in scripts for text in _MARKED.findall(file.read_text(encoding="utf-8"))}


def script_json(data: Any) -> str:
    r"""Serialise *data* as JSON for a script element: nothing in it ends the element or begins a comment.

    >>> script_json({"name": "</script>"})
    '{"name":"\\u003c/script>"}'
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
