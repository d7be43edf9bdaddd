"""A picture as a Vega-Lite specification, which vl-convert draws without a browser."""

import json
import re
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sim.message import Message
from sim.report.charts.fonts import converter, report_missing
from sim.study.execution.forked import beside

SIGNATURE = b"\x89PNG\r\n\x1a\n"
"""First bytes of every PNG file."""
SCALE = 1.5
"""Pixels of a PNG for each pixel of the specification."""
PIXELS_PER_INCH = 105.0
"""Pixels of the specification per inch of a figure for a paper: text of 11 pixels is 7.5 points high."""
PRINT_PPI = 300.0
POINTS_PER_INCH = 72.0


class Chart:
    """A picture as a Vega-Lite specification. A notebook shows it, and `save` writes it for a page or a paper.

    The same answer gives the same bytes in PNG and SVG.
    """

    def __init__(self, spec: Mapping[str, Any], width_in: float = 0.0) -> None:
        self.spec: Mapping[str, Any] = spec
        """Vega-Lite specification, which Altair and the Vega editor read."""
        self.width_in = width_in
        """Width in print [inch]; 0: pixels of the specification."""

    def save(self, path: str | Path, scale: float | None = None) -> None:
        """Write the picture to *path* in the format of its suffix: .png, .svg or .pdf.

        *scale* is the number of pixels of a PNG for each pixel of the specification, which is some 1,100 pixels wide
        (default 1.5). A figure for a paper has its width in inches in all formats; its PNG has 300 pixels per inch.
        Raises ValueError for another suffix. In a command a copy of the process may draw the picture, so that the file
        exists when the answer is complete.
        """
        format = Path(path).suffix.lower().removeprefix(".")
        if format not in ("png", "svg", "pdf"):
            raise ValueError(Message("{path}: a picture is saved as .png, .svg or .pdf", path))
        beside(partial(self._write, Path(path), format, scale))

    def _write(self, path: Path, format: str, scale: float | None) -> None:
        path.write_bytes(self._render(format, scale))

    def _render(self, format: str, scale: float | None = None) -> bytes:
        text = json.dumps(self.spec, ensure_ascii=False)
        report_missing(text)
        if self.width_in:
            svg, pixels = converter().vegalite_to_svg(text), PIXELS_PER_INCH * self.width_in
            if format == "svg":
                return _with_size(svg, self.width_in, "in").encode()
            if format == "pdf":  # PDF lengths are in points
                return bytes(converter().svg_to_pdf(_with_size(svg, POINTS_PER_INCH * self.width_in, "")))
            wide = round(scale * pixels if scale else PRINT_PPI * self.width_in)
            return _packed(converter().svg_to_png(_with_size(svg, wide, "")))
        options = {"scale": scale or SCALE} if format == "png" else {}
        drawn = getattr(converter(), f"vegalite_to_{format}")(text, **options)
        return drawn.encode() if isinstance(drawn, str) else _packed(drawn) if format == "png" else bytes(drawn)

    def _repr_png_(self) -> bytes:
        return self._render("png")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"image/png": self._repr_png_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return "<Chart: save(path) writes .png, .svg or .pdf>"


def _with_size(svg: str, width: float, unit: str) -> str:
    """Return *svg* with the width *width* in *unit*, and the height in proportion."""
    sizes = re.search(r'\bwidth="([\d.]+)" height="([\d.]+)"', svg)
    assert sizes is not None
    height = width * float(sizes[2]) / float(sizes[1])
    return f'{svg[: sizes.start()]}width="{width:g}{unit}" height="{height:.3f}{unit}"{svg[sizes.end() :]}'


def _packed(png: bytes) -> bytes:
    """Compress *png* for size, since vl-convert compresses for speed and writes three times the bytes."""
    chunks, at = [], len(SIGNATURE)
    while at < len(png):
        length = int.from_bytes(png[at : at + 4])
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += 12 + length
    data = zlib.compress(zlib.decompress(b"".join(part for kind, part in chunks if kind == b"IDAT")), 7)
    kept = [*((kind, part) for kind, part in chunks if kind not in (b"IDAT", b"IEND")), (b"IDAT", data), (b"IEND", b"")]
    parts = (len(part).to_bytes(4) + kind + part + zlib.crc32(kind + part).to_bytes(4) for kind, part in kept)
    return SIGNATURE + b"".join(parts)
