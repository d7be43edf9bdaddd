"""Doctests of docstrings as code: markdown would take `>>>` for a quotation."""

import re
from typing import Any

import griffe

BLOCK = re.compile(r"^>>>.*(?:\n.+)*", flags=re.MULTILINE)


class Doctests(griffe.Extension):
    """Fences every doctest before the page is rendered."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the doctests of one module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = BLOCK.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
