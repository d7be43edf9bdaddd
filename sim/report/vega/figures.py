"""The charts of a page with all that draws them there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.language import _
from sim.report.charts.panels import Panel
from sim.report.vega.bundle import bundle
from sim.report.vega.spec import chart_spec
from sim.report.vega.theme import themes


@dataclass(frozen=True, slots=True)
class PageFigure:
    """One chart under its heading."""

    title: str
    subtitle: str
    spec: Mapping[str, Any]
    said: str = ""
    """What it shows, for whoever does not see it."""
    wide: bool = False
    """It takes the page's whole width."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the scripts of a page need, whatever charts it has."""

    details: Mapping[str, Any] = field(default_factory=dict)
    """Key of a point -> its title and rows of (what, value): what is shown under the pointer."""

    @property
    def themes(self) -> Mapping[str, Any]:
        """Colours, light and dark."""
        return themes()

    @property
    def bundle(self) -> str:
        """The program that draws."""
        return bundle()


def panel_figure(panel: Panel) -> PageFigure:
    """A chart of curves."""
    names = dict.fromkeys(curve.name for curve in panel.curves if curve.name)
    limits = [limit.text for limit in (panel.x_limit, panel.y_limit) if limit is not None]
    said = _("Over {x_label}: {value}.", x_label=panel.x_label, value=_(", ").join([*names, *limits]))
    return PageFigure(panel.title, panel.subtitle, chart_spec(panel), said)


def panel_figures(panels: Sequence[Panel]) -> list[PageFigure]:
    """A chart for each panel."""
    return [panel_figure(panel) for panel in panels]
