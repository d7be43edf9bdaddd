"""`gpufleet check` for a queue: clusters, jobs in short, and where each value comes from."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from sim.language import _, retold
from sim.report.check.resolved import values_and_sources
from sim.report.fleets.run.basis import notes
from sim.report.terminal.fitted import FittedTable
from sim.report.words.text import plain
from sim.study.work.queue.columns import QueueRow

WORDED = frozenset({0, 1, 3, 4})


def queue_overview(rows: Sequence[QueueRow], plans: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    """What to print for *rows*, whose descriptions are *plans*."""
    for note in notes(plans):
        yield Text(_("Note: {note}", note=note))
    heads = [
        _("fleet"),
        _("pool"),
        "GPUs",
        _("server"),
        _("policy"),
        _("jobs"),
        _("GPU-hours of work"),
        _("largest job"),
        _("last arrival [h]"),
    ]
    body = [
        [
            plan["fleet"],
            plan["pool"]["name"],
            f"{plan['pool']['gpus']:,}",
            plan["pool"]["server"] or _("none"),
            plan["policy"]["policy"],
            f"{plan['jobs']['number']:,}",
            plain(plan["jobs"]["gpu_hours"]),
            f"{plan['jobs']['largest_gpus']:,}",
            plain(plan["jobs"]["last_arrival_h"]),
        ]
        for plan in plans
    ]
    yield FittedTable(heads, body, WORDED)
    for row in rows:
        if not row.ok:
            yield Text(_("{fleet} cannot run: {reason}", fleet=row.fleet, reason=retold(row.cells["reason"])))
    yield from values_and_sources(plans)
