"""Pictures: the charts of an answer under question, verdict and legend, composed as one Vega-Lite specification.

vl-convert draws them without a browser. The charts are those of pages, without the parts that respond to a pointer.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sim.report.charts.chart import PIXELS_PER_INCH, Chart
from sim.report.charts.fonts import FAMILY, WIDE, converter, glyphs, lines_of
from sim.report.charts.panels import DASHES, GLYPHS, Panel, print_dash
from sim.report.charts.vega_lite import (
    CROSS,
    MARK_COLOR,
    PRINTED,
    SHAPES,
    SIZES,
    SMALL,
    TEXT_SHARE,
    USUAL,
    PageFigure,
    Spec,
    config,
    dash_lengths,
    panel_figures,
    params,
)
from sim.report.words.money import symbol

LINES = {"solid": "━━", "dashed": "╍╍", "dash-dotted": "━·━", "fine dashes": "┅┅"}
"""Line styles as characters."""
SOFT = "#666666"
"""Colour of marks that represent no fleet."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """Entry of the legend: a marker, a line, both, or an area."""

    name: str
    color: str
    marker: str = ""
    dash: Any = ""
    area: float = 0.0
    """Opacity of the area."""
    stands_for: bool = True
    """True if the entry names the meaning of a colour, such as a fleet.

    Other entries explain a marker or a line style, with a hollow marker or a gray line.
    """

    @property
    def glyph(self) -> str:
        """Mark of the entry as a character: its marker, else its line."""
        if self.marker:
            return GLYPHS[self.marker]
        return LINES.get(next((name for name, dash in DASHES.items() if dash == self.dash), ""), LINES["solid"])


COLUMNS = 2
"""Largest number of charts side by side."""
PLOT = SIZES["wide"][0]
"""Width of a plot area beside another [px]: that of pages, for which the texts in charts are placed."""
LEFT, RIGHT = 44.0, 16.0
"""Room left of a plot area for numbers, and right of it for ends of marks and numbers [px]."""
CELL = LEFT + PLOT + RIGHT
"""Width of a chart beside another [px]."""
ABOVE = 10.0
"""Room for marks and labels that reach above a plot area, so that headings of a row are level [px]."""
GAP, BETWEEN_ROWS, PADDING = 16.0, 26.0, 20.0
"""Space between charts of a row, between rows, and around the picture [px]."""
QUESTION, ANSWER, TITLE = 19.0, 14.0, 15.0
"""Font sizes of the question, of the answers and of a chart's title [px]."""
LEADING = 1.3
"""Height of a line of text, in units of the font size."""
LETTER = 0.5
"""Mean width of a character of Liberation Sans, in units of the font size."""
BOLDER = 1.12
"""Width of bold text over that of regular text."""
MOST_LABEL = 190.0
"""Width of the widest label left of a bar [px]."""
WIDER = 0.55
"""Share of a plot area for texts beside bars; larger than in a page, where a tooltip shows the whole text."""
MARK_STEP, MARK_LINE = 24.0, 22.0
"""Room for the mark before an entry of the legend, and the height of the legend's lines [px]."""
EDGE: Spec = {"width": 0, "height": 0, "data": {"values": []}, "mark": "point", "encoding": {}}
"""Empty first view of each row: Vega aligns rows at the plot areas of their first views, whatever their labels."""


@contextmanager
def for_paper(width_in: float) -> Iterator[None]:
    """Draw pictures within this context as figures of a paper, *width_in* inches wide: no heading, a legend."""
    token = PRINTED.set(width_in)
    try:
        yield
    finally:
        PRINTED.reset(token)


def panel_picture(
    panels: Sequence[Panel], question: str, answers: Sequence[str], key: Sequence[KeyEntry] = ()
) -> Chart:
    """Compose *panels*, two abreast, under the *question*, the *answers* and the legend *key*."""
    return picture(panel_figures(panels), question, answers, key)


def picture(
    figures: Sequence[PageFigure], question: str, answers: Sequence[str], key: Sequence[KeyEntry] = (), note: str = ""
) -> Chart:
    """Compose *figures*, two abreast, into a picture.

    The *question*, the *answers*, a *note* on the charts and the legend *key* precede them.
    """
    inches = PRINTED.get()
    if inches:
        return _printed(figures, key, inches)
    alone = len(figures) == 1
    width = CELL if alone else COLUMNS * CELL + GAP
    rows = [[_cell(one, width if one.wide else CELL) for one in row] for row in _rows(figures, COLUMNS)]
    head = _head(width, question, answers, note, key)
    drawn = [{"hconcat": [EDGE, *row], "spacing": GAP} for row in (head, *rows) if row]
    padding = {"left": PADDING - GAP, "right": PADDING, "top": PADDING, "bottom": PADDING}
    return Chart(_whole(drawn, padding, BETWEEN_ROWS, "wide"))


def _printed(figures: Sequence[PageFigure], key: Sequence[KeyEntry], inches: float) -> Chart:
    """Compose *figures* for a paper: under each other in a column, two abreast over the width of a page."""
    width = inches * PIXELS_PER_INCH - CLOSE
    columns = COLUMNS if len(figures) > 1 and width > COLUMNS * CELL / 1.5 else 1
    cell = (width - CLOSE * columns) / columns
    layout = "wide" if cell - LEFT - RIGHT >= PLOT else "narrow"
    rows = [[_cell(one, width - CLOSE if one.wide else cell, layout) for one in row] for row in _rows(figures, columns)]
    head = _head(width - CLOSE, "", (), "", _of_lines(key))
    drawn = [{"hconcat": [EDGE, *row], "spacing": CLOSE} for row in (head, *rows) if row]
    return Chart(_whole(drawn, {"left": 0, "right": 0, "top": 2, "bottom": 2}, CLOSE, layout), inches)


def _of_lines(key: Sequence[KeyEntry]) -> list[KeyEntry]:
    """Return the legend *key* with the line style of every fleet, unless line styles stand for settings."""
    if any(one.dash and not one.stands_for for one in key):
        return list(key)
    return [replace(one, dash=one.dash or print_dash(one.color)) if one.stands_for else one for one in key]


CLOSE = 8.0
"""Space between charts of a figure for a paper, and left of them [px]."""


def _whole(rows: Sequence[Spec], padding: Mapping[str, float], spacing: float, layout: str) -> Spec:
    """Return the specification of a picture of *rows*, whose texts are those of *layout*."""
    look = config() | {"font": FAMILY, "background": "white", "aria": False}
    look |= {"title": {"anchor": "start", "frame": "group", "fontSize": TITLE, "subtitleFontSize": SMALL + 0.5,
                       "color": {"expr": "ink"}, "subtitleColor": {"expr": "soft"}, "offset": 14 - ABOVE}}  # fmt: skip
    given = [{**one, "value": layout} if one["name"] == "layout" else one for one in params()]
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{converter().get_vegalite_versions()[-1]}.json",
        "params": given,
        "padding": padding,
        "vconcat": rows,
        "spacing": spacing,
        "config": look,
    }


def _rows(figures: Sequence[PageFigure], columns: int) -> list[list[PageFigure]]:
    """Divide *figures* into rows of *columns*; a wide figure has a row of its own."""
    rows: list[list[PageFigure]] = []
    for one in figures:
        if one.wide or not rows or len(rows[-1]) == columns or rows[-1][0].wide:
            rows.append([])
        rows[-1].append(one)
    return rows


def _cell(figure: PageFigure, width: float, layout: str = "wide") -> Spec:
    """Return the chart of *figure* with its heading, *width* pixels wide in all."""
    spec = {name: part for name, part in figure.spec.items() if name in ("height", "encoding", "layer")}
    left = _left(spec)
    plot = width - left - RIGHT
    frame = {"data": {"values": [{}]}, "mark": {"type": "rect", "opacity": 0, "tooltip": None}}
    ends = {"x": {"value": -left}, "x2": {"value": plot + RIGHT}, "y": {"value": -ABOVE}, "y2": {"value": 0}}
    layers = [
        {**frame, "encoding": ends},
        *filter(None, (_without_interaction(layer, layout) for layer in spec["layer"])),
    ]
    if PRINTED.get():
        bare: Spec = _with_width({**spec, "layer": layers}, plot)
        return {"width": plot, **bare}
    title = {"text": figure.title, "subtitle": figure.subtitle, "dx": -left, "limit": width}
    fixed: Spec = _with_width({**spec, "layer": layers}, plot)
    return {"title": title, "width": plot, **fixed}


TITLED = 18.0
"""Room for the title of a y axis [px]."""


def _left(spec: Spec) -> float:
    """Return the room for the labels left of the plot area of *spec* [px]."""
    axis = spec["encoding"]["y"]
    if axis["type"] == "nominal":
        return max(
            LEFT, 10 + min(MOST_LABEL, 1.1 * LETTER * SMALL * max(map(glyphs, axis["scale"]["domain"]), default=0.0))
        )
    longest = f"{symbol()}{round(axis['scale']['domain'][-1]):,}"
    titled = TITLED if axis["axis"].get("title") else 0.0
    return max(LEFT, 10 + 1.1 * LETTER * SMALL * len(longest)) + titled


def _without_interaction(layer: Spec, layout: str) -> Spec:
    """Return *layer* without marks that only a pointer shows, and without the texts of layouts other than *layout*."""
    if str(layer["mark"].get("opacity", "")).startswith("{'expr': 'hovered"):
        return {}
    rows = [row for row in layer["data"]["values"] if row.get("layout", layout) == layout and row.get("shape") != ""]
    rows = [{name: row[name] for name in row if name not in ("said", "key", "name")} for row in rows]
    mark = {name: part for name, part in layer["mark"].items() if name != "cursor"}
    encoding = {name: part for name, part in layer.get("encoding", {}).items() if part.get("field") != "key"}
    return {"data": {"values": rows}, "mark": mark, "encoding": encoding} if rows else {}


def _with_width(part: Any, width: float) -> Any:
    """Replace the signal `width` in the expressions of *part*, a piece of a specification, by the number *width*."""
    if isinstance(part, dict):
        found = {name: _with_width(one, width) for name, one in part.items()}
        if isinstance(found.get("expr"), str):
            text = found["expr"].replace(TEXT_SHARE, f"{WIDER * width:g}")
            found["expr"] = re.sub(r"\bwidth\b", f"{width:g}", text)
        return found
    return [_with_width(one, width) for one in part] if isinstance(part, list) else part


def _head(width: float, question: str, answers: Sequence[str], note: str, key: Sequence[KeyEntry]) -> list[Spec]:
    """Return the view above the charts, with texts and legend at fixed places; no view without texts and legend."""
    texts: list[Spec] = []
    y = 0.0
    for text, size, color in [(question, QUESTION, "ink"), *((one, ANSWER, "soft") for one in answers),
                              (note, ANSWER, "ink")]:  # fmt: skip
        for line in lines_of(text, int(width / (_letter(text) * size))) if text else ():
            texts.append({"x": 0, "y": y, "t": line, "size": size, "tone": color, "weight": "normal"})
            y += LEADING * size
        y += 4 if text else 0
    marks, named, y = _key(width, y + 4, key)
    if not texts and not marks:
        return []
    layers = [*marks, _texts([*texts, *named])]
    place = {name: {"field": name, "type": "quantitative", "scale": None, "axis": None} for name in ("x", "y")}
    return [{"width": width, "height": y, "encoding": place, "layer": layers}]


def _texts(rows: list[Spec]) -> Spec:
    """Return the layer of the texts in *rows*, at places in pixels."""
    mark = {"type": "text", "align": "left", "baseline": "top", "text": {"expr": "datum.t"}, "tooltip": None}
    mark |= {"fontSize": {"expr": "datum.size"}, "fontWeight": {"expr": "datum.weight"}}
    mark["color"] = {"expr": "datum.tone == 'ink' ? ink : datum.tone == 'soft' ? soft : words[datum.tone]"}
    return {"data": {"values": rows}, "mark": mark}


def _letter(text: str) -> float:
    """Return the mean width of a glyph of *text* in units of the font size; East Asian characters are square."""
    return LETTER if glyphs(text) == len(text) else 1 / WIDE


def _key(width: float, top: float, key: Sequence[KeyEntry]) -> tuple[list[Spec], list[Spec], float]:
    """Return layers of the marks of the legend, rows of their names, and the lower edge of both."""
    points: list[Spec] = []
    rules: list[Spec] = []
    areas: list[Spec] = []
    names: list[Spec] = []
    x, y = 0.0, top
    for one in key:
        letter = _letter(one.name) * (BOLDER * USUAL if one.stands_for else SMALL)
        line = 30.0 if one.dash or one.area else 0.0
        size = line + MARK_STEP + letter * glyphs(one.name)
        if x and x + size > width:
            x, y = 0.0, y + MARK_LINE
        middle, look = y + MARK_LINE / 2, {"color": one.color}
        if one.dash:
            rules.append({"x": x + 2, "x2": x + line, "y": middle, "dash": dash_lengths(one.dash), **look})
        if one.area:
            areas.append({"x": x, "x2": x + line, "y": middle - 6, "y2": middle + 6, "opacity": one.area, **look})
        if one.marker:
            shape = SHAPES.get(one.marker, CROSS)
            points.append(
                {
                    "x": x + (2 + line) / 2 if line else x + 6,
                    "y": middle,
                    "shape": shape,
                    "good": one.stands_for,
                    **look,
                }
            )
        font, weight, tone = (USUAL, "bold", one.color) if one.stands_for else (SMALL, "normal", "soft")
        start, entries = x + (line + 8 if line else 16), {"t": one.name, "weight": weight, "tone": tone}
        names.append({"x": start, "y": middle - 0.5 * font, "size": font, **entries})
        x += size
    return list(filter(None, (_areas(areas), _rules(rules), _points(points)))), names, y + MARK_LINE * bool(key)


def _points(rows: list[Spec]) -> Spec:
    mark = {"type": "point", "filled": False, "size": 62, "strokeWidth": 1.8, "opacity": 1}
    mark |= {
        "shape": {"expr": "datum.shape"},
        "stroke": {"expr": MARK_COLOR},
        "fill": {"expr": f"datum.good ? {MARK_COLOR} : paper"},
        "tooltip": None,
    }
    return {"data": {"values": rows}, "mark": mark} if rows else {}


def _rules(rows: list[Spec]) -> Spec:
    mark = {"type": "rule", "strokeWidth": 2.2, "color": {"expr": MARK_COLOR}}
    mark |= {"strokeDash": {"expr": "datum.dash"}, "tooltip": None}
    ends = {"x2": {"field": "x2"}}
    return {"data": {"values": rows}, "mark": mark, "encoding": ends} if rows else {}


def _areas(rows: list[Spec]) -> Spec:
    mark = {"type": "rect", "color": {"expr": MARK_COLOR}, "opacity": {"expr": "datum.opacity"}, "tooltip": None}
    ends = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    return {"data": {"values": rows}, "mark": mark, "encoding": ends} if rows else {}
