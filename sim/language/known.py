"""Which languages there are, and which one the environment asks for."""

from collections.abc import Mapping

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
