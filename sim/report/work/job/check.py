"""`gpufleet check` for a job: layout, memory by part, and where each value comes from."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from sim.language import _, retold
from sim.report.check.resolved import values_and_sources
from sim.report.fleets.run.basis import notes
from sim.report.page.page import text_table
from sim.report.work.job.tables import layout_table, memory_table
from sim.study.work.job.columns import JobRow


def job_overview(rows: Sequence[JobRow], plans: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    """What to print for *rows*, whose descriptions are *plans*."""
    for note in notes(plans):
        yield Text(_("Note: {note}", note=note))
    for table in (layout_table(rows), memory_table(rows)):
        yield Text(f"\n{table.title}", style="bold")
        yield text_table(table)
    for row in rows:
        if not row.ok:
            yield Text(
                _("{fleet} cannot run: {infeasible}", fleet=row.fleet, infeasible=retold(row.outcome.plan.infeasible))
            )
    yield from values_and_sources(plans)
