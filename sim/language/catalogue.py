"""Supported languages, and the catalogue of each: the file that translators edit.

The environment selects the language. A catalogue is read as text, so that nothing has to be compiled before the first
run.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ENGLISH = "en"
LANGUAGES = {ENGLISH: "en", "zh": "zh-CN"}
"""Languages: code -> tag of pages (BCP 47)."""
OWN = "GPUFLEET_LANG"
"""Environment variable that selects the language of gpufleet."""
OF_THE_SYSTEM = ("LC_ALL", "LC_MESSAGES", "LANG")
"""Environment variables of the system's language; the first that is set decides."""


def known_language(name: str) -> str | None:
    """Return the code of the language *name*; None where it has no catalogue.

    >>> [known_language(name) for name in ("zh", "zh_CN.UTF-8", "zh-Hans", "en_US", "C", "fr")]
    ['zh', 'zh', 'zh', 'en', 'en', None]
    """
    code = name.lower().replace("-", "_").split(".")[0].split("_")[0]
    return ENGLISH if code in ("c", "posix") else code if code in LANGUAGES else None


def asked_for(environment: Mapping[str, str]) -> str:
    """Return the code of the language that *environment* selects: by GPUFLEET_LANG, else by the system's variables.

    English if that language has no catalogue.

    >>> asked_for({"LANG": "zh_CN.UTF-8"}), asked_for({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"})
    ('zh', 'en')
    """
    named = next((environment[name] for name in (OWN, *OF_THE_SYSTEM) if environment.get(name)), ENGLISH)
    return known_language(named) or ENGLISH


FOLDER = Path(__file__).parent


def file_of(code: str) -> Path:
    """Return the file of the catalogue of language *code*."""
    return FOLDER / code / "LC_MESSAGES" / "gpufleet.po"


@cache
def catalogue(code: str) -> dict[str, str]:
    """Read the catalogue of language *code*: English message -> translation; plural forms for messages with a plural.

    Messages without a translation, or whose translation awaits a review (`fuzzy`), are left out. The file is one that
    Babel wrote: its strings are quoted as JSON's are.
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
