"""Languages that the program speaks, and the catalogue of each: the file that translators edit.

The environment says which language is asked for. A catalogue is read as it is, so nothing has to be compiled
before the first run.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ENGLISH = "en"
LANGUAGES = {ENGLISH: "en", "zh": "zh-CN"}
"""Code -> tag of pages (BCP 47)."""
OWN = "GPUFLEET_LANG"
OF_THE_SYSTEM = ("LC_ALL", "LC_MESSAGES", "LANG")
"""The first that is set decides, as for every program."""


def known_language(name: str) -> str | None:
    """The code that *name* means, None where no catalogue speaks it.

    >>> [known_language(name) for name in ("zh", "zh_CN.UTF-8", "zh-Hans", "en_US", "C", "fr")]
    ['zh', 'zh', 'zh', 'en', 'en', None]
    """
    code = name.lower().replace("-", "_").split(".")[0].split("_")[0]
    return ENGLISH if code in ("c", "posix") else code if code in LANGUAGES else None


def asked_for(environment: Mapping[str, str]) -> str:
    """The code of the language that *environment* asks for: by GPUFLEET_LANG, else as the system says; English where
    no catalogue speaks that.

    >>> asked_for({"LANG": "zh_CN.UTF-8"}), asked_for({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"})
    ('zh', 'en')
    """
    named = next((environment[name] for name in (OWN, *OF_THE_SYSTEM) if environment.get(name)), ENGLISH)
    return known_language(named) or ENGLISH


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
