"""The futures' part of report.html, and futures.png beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.language import N_, _
from sim.report.charts.fonts import drawable
from sim.report.fleets.futures.picture import charts, write_picture
from sim.report.fleets.futures.sentences import sentences, shown_settings
from sim.report.fleets.futures.tables import futures_table, inputs_table
from sim.study.fleets.futures.draws import FutureStudy
from sim.study.fleets.run.point import Point, fleets_of

NOTE = N_(
    "Monte Carlo on the bills of the simulated points: each draw sets every uncertain input "
    "once for all fleets, independently of the others; quotes for one item, and the hours of "
    "one tariff, move together. The interval of a share is that of the draws alone (Wilson): "
    "traffic is not drawn again. Tables and charts elsewhere use the central values. Normal "
    "and lognormal distributions are cut at 4 standard deviations, or where the scenario "
    "says."
)
OF_LOADS = N_(
    " A drawn load lies between simulated ones: amounts per hour are taken as the straight line between them."
)


def futures_section(out: Path, study: FutureStudy, points: Sequence[Point], axes: Sequence[str]) -> dict[str, Any]:
    """What the template shows; futures.png goes to the folder *out*."""
    shown, answers, fleets = shown_settings(study, points, axes), sentences(study, points, axes), fleets_of(points)
    if shown:
        with drawable():
            write_picture(out / "futures.png", study, shown[0], fleets, sentences(study, points, axes)[0])
    return {
        "sentences": answers,
        "charts": charts(study, shown, fleets),
        "table": futures_table(study, points, axes),
        "inputs": inputs_table(study.inputs),
        "note": _(NOTE) + (_(OF_LOADS) if study.load_drawn else ""),
    }
