"""Fonts of pictures: DejaVu Sans, and for what it does not have an East Asian font of this machine."""

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from textwrap import wrap
from threading import RLock
from typing import Any
from unicodedata import east_asian_width

from sim.language import ENGLISH, _, current, speaking

LATIN = "DejaVu Sans"
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "gpufleet", "text.parse_math": False}
EAST_ASIAN = (
    *(f"Noto Sans CJK {region}" for region in ("SC", "JP", "TC", "KR")),
    *(f"Noto Sans {region}" for region in ("SC", "JP", "TC", "KR")),
    *("Source Han Sans SC", "Source Han Sans CN", "Source Han Sans JP", "Source Han Sans KR", "Source Han Sans"),
    *("WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback"),
    *("Microsoft YaHei", "SimHei", "SimSun", "Yu Gothic", "Meiryo", "MS Gothic", "Malgun Gothic"),
    *("PingFang SC", "PingFang HK", "Hiragino Sans", "Hiragino Sans GB", "STHeiti", "Apple SD Gothic Neo"),
)
"""Families by the names that their files carry, of Linux, Windows and macOS."""
FILES = re.compile(r"cjk|wqy|sourcehan|noto(sans)(sc|jp|tc|kr)|droidsansfallback", re.IGNORECASE)
"""Files that hold them, for those that came after matplotlib made its list."""
WIDE = 1 / 0.6
"""Width of an East Asian character in that of the mean glyph."""
_ONE_AT_A_TIME = RLock()
"""Settings of matplotlib and filters of warnings are the process's: two threads would restore each other's."""
_MISSING = re.compile(r"Glyph (\d+) .*missing from")
_told: set[str] = set()
_in_english: set[str] = set()
OF_EAST_ASIA = {"zh"}
"""Languages that DejaVu Sans cannot write."""


@cache
def east_asian_families() -> tuple[str, ...]:
    """Those that are installed."""
    from matplotlib import font_manager

    def known() -> tuple[str, ...]:
        names = {font.name for font in font_manager.fontManager.ttflist}
        return tuple(family for family in EAST_ASIAN if family in names)

    if found := known():
        return found
    for path in font_manager.findSystemFonts():
        if FILES.search(Path(path).name):
            font_manager.fontManager.addfont(path)
    return known()


@contextmanager
def drawable() -> Iterator[bool]:
    """Within it texts are made for a picture: in the reader's language, where a font here has its characters, else in
    English, which is reported once, on stderr. Yields whether it is the reader's.
    """
    if current() not in OF_EAST_ASIA or east_asian_families():
        yield True
        return
    if not _in_english:
        told = _("pictures are in English: no font here has the characters; install one, such as Noto Sans CJK SC")
        sys.stderr.write(f"{told}\n")
        _in_english.add(current())
    with speaking(ENGLISH):
        yield False


@contextmanager
def settings() -> Iterator[None]:
    """What makes the same picture the same bytes; characters that no font has are reported once, on stderr.

    One thread draws at a time; the others wait.
    """
    import matplotlib as mpl

    missing: set[str] = set()
    with (
        _ONE_AT_A_TIME,
        mpl.rc_context(SETTINGS | {"font.family": [LATIN, *east_asian_families()]}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("always", message=_MISSING.pattern)
        show = warnings.showwarning

        def collect(message: Any, *rest: Any) -> None:
            if found := _MISSING.match(str(message)):
                missing.add(chr(int(found[1])))
            else:
                show(message, *rest)

        warnings.showwarning = collect  # type: ignore[assignment]
        finder = logging.getLogger("matplotlib.font_manager")
        finder.addFilter(_not_of_weight)
        try:
            yield
        finally:
            finder.removeFilter(_not_of_weight)
    if missing and not _told:
        shown = "".join(sorted(missing)[:10])
        told = f"pictures have boxes in place of characters such as {shown}: no font installed here has them;"
        sys.stderr.write(f"{told} install one that does, such as Noto Sans CJK\n")
    _told.update(missing)


def _not_of_weight(record: logging.LogRecord) -> bool:
    """That an East Asian font has one weight only is no news."""
    return "font weight" not in record.getMessage()


def glyphs(text: str) -> float:
    """How wide *text* is, in mean glyphs."""
    wide = sum(east_asian_width(character) in "WF" for character in text)
    return len(text) + (WIDE - 1) * wide


def shortened(text: str, most: float) -> str:
    """*text* in at most *most* mean glyphs: what is longer ends with an ellipsis."""
    if glyphs(text) <= most:
        return text
    kept = text
    while kept and glyphs(kept) > most - 1:
        kept = kept[:-1]
    return f"{kept.rstrip()}…"


def lines_of(text: str, most: int) -> list[str]:
    """*text* in lines of at most *most* glyphs; what has no blanks is divided anywhere."""
    filled = re.sub(r"(.)", lambda found: found[1] + "\0" * (east_asian_width(found[1]) in "WF"), text)
    return [line.replace("\0", "") for line in wrap(filled, most)]
