"""Current language, and translation of messages into it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from sim.language.catalogue import ENGLISH, LANGUAGES, asked_for, catalogue

_LANGUAGE: ContextVar[str | None] = ContextVar("language", default=None)


def current() -> str:
    """Return the code of the current language: en, zh."""
    return _LANGUAGE.get() or _of_the_environment()


@cache
def _of_the_environment() -> str:
    return asked_for(os.environ)


def speak(code: str) -> None:
    """Use language *code* from now on, in this thread; a thread begins with the environment's language."""
    _LANGUAGE.set(_known_language(code))


@contextmanager
def speaking(code: str) -> Iterator[None]:
    """Use language *code* (en or zh) within this context. Raises ValueError for any other code."""
    token = _LANGUAGE.set(_known_language(code))
    try:
        yield
    finally:
        _LANGUAGE.reset(token)


def _known_language(code: str) -> str:
    if code not in LANGUAGES:
        raise ValueError(f"no catalogue speaks {code!r}: known are {', '.join(LANGUAGES)}")
    return code


def _(message: str, /, **values: Any) -> str:
    """Translate the English *message*, and fill its named fields with *values*."""
    code = current()
    text = message if code == ENGLISH else catalogue(code).get(message, message)
    return text.format(**values) if values else text


def ngettext(one: str, several: str, count: float, /, **values: Any) -> str:
    """Translate *one* or *several*, by *count*, and fill the fields of the text; {count} is the count."""
    code = current()
    text = one if count == 1 else several
    if code != ENGLISH:
        text = catalogue(code).get(several, text)
    return text.format(**{"count": count, **values})


def N_(message: str) -> str:  # noqa: N802  # what gettext's tools look for
    """Mark *message* for translation and return it unchanged, for a constant that `_` translates where it is shown."""
    return message
