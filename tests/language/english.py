"""English sentences in what is shown: runs of words that no name, id, unit or command accounts for."""

import re
from html import unescape

WORD = r"[A-Za-z][a-z']+"
RUN = re.compile(rf"\b{WORD}(?:[,;:]? {WORD}){{2,}}")
"""Three words in a row."""
IN_PAGES = re.compile(r"<(script|style|code|title)\b.*?</\1>|<[^>]*>|https?://\S+", re.DOTALL)


def english(text: str, names: frozenset[str] = frozenset()) -> list[str]:
    """Runs of English words in *text*, those apart that stand in *names*."""
    return [found[0] for found in RUN.finditer(text) if not any(found[0] in name for name in names)]


def text_of(page: str) -> str:
    """Return the readable text of a *page*, without scripts, tags and addresses."""
    return unescape(IN_PAGES.sub(" | ", page))
