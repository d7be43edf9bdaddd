"""A language's catalogue, read from the file that translators edit: nothing has to be compiled before the first run."""

import json
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


def file_of(code: str) -> Path:
    """The catalogue of the language *code*."""
    return FOLDER / code / "LC_MESSAGES" / "gpufleet.po"


@cache
def catalogue(code: str) -> dict[str, str]:
    """English message -> message in the language *code*; of one with a plural, the plural.

    What is not translated, or awaits a translator's eye (`fuzzy`), is left out. The file is one that Babel wrote: its
    strings are quoted as JSON's are.
    """
    found: dict[str, str] = {}
    for block in file_of(code).read_text(encoding="utf-8").split("\n\n"):
        if "\n#, fuzzy" in f"\n{block}":
            continue
        texts: dict[str, str] = {}
        key = ""
        for line in block.splitlines():
            if line.startswith("msg"):
                key, _, line = line.partition(" ")
            if line.startswith('"') and key:
                texts[key] = texts.get(key, "") + json.loads(line)
        english = texts.get("msgid_plural") or texts.get("msgid", "")
        if english and (text := texts.get("msgstr") or texts.get("msgstr[0]", "")):
            found[english] = text
    return found
