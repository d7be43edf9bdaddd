"""Fonts of pictures: Liberation Sans, which vl-convert contains, and installed fonts for other characters."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from re import sub
from textwrap import wrap
from types import ModuleType
from unicodedata import east_asian_width

from sim.language import ENGLISH, _, current, speaking

FAMILY = "Liberation Sans, Arial, Helvetica, sans-serif"
WIDE = 1 / 0.6
"""Width of an East Asian character, in units of the mean glyph."""
OF_EAST_ASIA = {"zh": "中"}
"""Languages that Liberation Sans cannot write -> a sample character."""
IN_NO_FONT = "\U000ffffd"
"""Character for private use, which no font has."""
_BOX = '<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24"><text y="20" font-family="{}">{}</text></svg>'
_reported: set[str] = set()


@cache
def converter() -> ModuleType:
    """Return the module vl_convert, which renders Vega-Lite; imported on first use."""
    import vl_convert

    return vl_convert


def start_converter() -> None:
    """Start the JavaScript engine of the converter, which takes longer than to draw a picture."""
    converter().vegalite_to_svg('{"data": {"values": []}, "mark": "point"}')


@cache
def has_glyph(character: str) -> bool:
    """Return whether an installed font has *character*; a character without a font is drawn as a box."""
    boxes = [converter().svg_to_png(_BOX.format(FAMILY, f"&#{ord(one)};")) for one in (character, IN_NO_FONT)]
    return bool(boxes[0] != boxes[1])


@contextmanager
def drawable() -> Iterator[bool]:
    """Choose the language of a picture's texts within this context; yield whether it is the shown language.

    Where no installed font has the characters of the shown language, texts are in English, which is reported once on
    stderr.
    """
    sample = OF_EAST_ASIA.get(current())
    if sample is None or has_glyph(sample):
        yield True
        return
    if current() not in _reported:
        text = _("pictures are in English: no font here has the characters; install one, such as Noto Sans CJK SC")
        sys.stderr.write(f"{text}\n")
        _reported.add(current())
    with speaking(ENGLISH):
        yield False


def report_missing(text: str) -> None:
    """Report characters of *text* that no installed font has, once, on stderr."""
    missing = {one for one in set(text) if one.isprintable() and east_asian_width(one) in "WF" and not has_glyph(one)}
    if missing and not any(len(one) == 1 for one in _reported):
        shown = "".join(sorted(missing)[:10])
        text = _(
            "pictures have boxes in place of characters such as {shown}: no font installed here has them; install one "
            "that does, such as Noto Sans CJK",
            shown=shown,
        )
        sys.stderr.write(f"{text}\n")
    _reported.update(missing)


def glyphs(text: str) -> float:
    """Return the width of *text*, in units of the mean glyph."""
    wide = sum(east_asian_width(character) in "WF" for character in text)
    return len(text) + (WIDE - 1) * wide


def lines_of(text: str, most: int) -> list[str]:
    """Divide *text* into lines of at most *most* glyphs; a text without blanks may be divided anywhere."""
    filled = sub(r"(.)", lambda found: found[1] + "\0" * (east_asian_width(found[1]) in "WF"), text)
    return [line.replace("\0", "") for line in wrap(filled, most)]
