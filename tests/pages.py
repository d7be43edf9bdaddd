"""A page as tests read it: without the programs that draw it, and its charts as data."""

import json
import re
from typing import Any

_PROGRAM = re.compile(r"<script>.*?</script>", re.DOTALL)
_CHART = re.compile(r'<script type="application/json" class="chart">(.*?)</script>', re.DOTALL)
_FETCHES = re.compile(r"<(link|img|iframe)\b|\bsrc=|@import|url\((?!#)|\bfetch\(|XMLHttpRequest")


def text_of(page: str) -> str:
    """The *page* without its programs. Fails where they, or anything else, could fetch something."""
    text = _PROGRAM.sub("", page)
    assert "default-src 'none'" in text
    assert not _FETCHES.search(text)
    return text


def charts_of(page: str) -> list[dict[str, Any]]:
    """The specifications of its charts."""
    return [json.loads(text) for text in _CHART.findall(page)]
