"""What a notebook shows of an answer: verdict, tables, picture."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from sim.report.page.template import render
from sim.report.terminal.fitted import FittedTable

TEMPLATE = "page/notebook.html.j2"


def notebook_html(
    name: str, verdict: str, findings: Sequence[str], tables: Sequence[FittedTable], picture: Any = None
) -> str:
    """A piece of a page, without scripts and with nothing to fetch; *picture* is a matplotlib figure."""
    drawn = "" if picture is None else b64encode(picture._repr_png_()).decode()
    shown = [
        {
            "title": table.title,
            "heads": table.heads,
            "rows": [[cell.split("\n") for cell in row] for row in table.rows],
            "worded": table.worded,
        }
        for table in tables
        if table.rows
    ]
    return render(TEMPLATE, name=name, verdict=verdict, findings=findings, tables=shown, picture=drawn)
