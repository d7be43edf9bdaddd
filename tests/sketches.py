"""Sketches in place of pictures: drawing one takes longer than most simulations."""

import json
import zlib

from sim.report.charts.chart import SIGNATURE, Chart

_render = Chart._render


def sketch(chart: Chart, format: str, scale: float | None = None) -> bytes:
    """Return a picture of one pixel, which differs where the specifications do; other formats are drawn."""
    if (format, scale) != ("png", None):
        return _render(chart, format, scale)
    size, row = (1).to_bytes(4) * 2 + b"\x08\x00\x00\x00\x00", b"\x00\x00"
    note = b"spec\x00" + str(zlib.crc32(json.dumps(chart.spec).encode())).encode()
    chunks = ((b"IHDR", size), (b"tEXt", note), (b"IDAT", zlib.compress(row)), (b"IEND", b""))
    return SIGNATURE + b"".join(
        len(part).to_bytes(4) + kind + part + zlib.crc32(kind + part).to_bytes(4) for kind, part in chunks
    )
