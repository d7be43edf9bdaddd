"""Pages from templates: the one jinja2 environment of the program."""

from pathlib import Path
from typing import Any

from sim.report.words.text import number

TEMPLATES = Path(__file__).parents[1]
"""Each template lies beside the code that fills it."""


def render(template: str, /, **values: Any) -> str:
    """The text of *template*, a path below `sim/report`, with *values*; the same values give the same bytes.

    Raises jinja2.UndefinedError where the template names a value that is not given.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    return environment.get_template(template).render(**values)
