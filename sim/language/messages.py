"""What is spoken now, and messages in it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from sim.language.catalogue import ENGLISH, LANGUAGES, asked_for, catalogue

_SPOKEN: ContextVar[str | None] = ContextVar("language", default=None)


def current() -> str:
    """Code of the language: en, zh."""
    return _SPOKEN.get() or _of_the_environment()


@cache
def _of_the_environment() -> str:
    return asked_for(os.environ)


def speak(code: str) -> None:
    """From here on the program speaks *code*; a thread begins with what the environment asks for."""
    _SPOKEN.set(_checked(code))


@contextmanager
def speaking(code: str) -> Iterator[None]:
    """Within it everything is said in the language *code*: en or zh. Raises ValueError for any other."""
    token = _SPOKEN.set(_checked(code))
    try:
        yield
    finally:
        _SPOKEN.reset(token)


def _checked(code: str) -> str:
    if code not in LANGUAGES:
        raise ValueError(f"no catalogue speaks {code!r}: known are {', '.join(LANGUAGES)}")
    return code


def _(message: str, /, **values: Any) -> str:
    """The English *message* in the language that is spoken, its named places filled with *values*."""
    code = current()
    text = message if code == ENGLISH else catalogue(code).get(message, message)
    return text.format(**values) if values else text


def ngettext(one: str, several: str, count: float, /, **values: Any) -> str:
    """*one* or *several*, as many as *count*, in the language that is spoken; a text may have a place {count}."""
    code = current()
    text = one if count == 1 else several
    if code != ENGLISH:
        text = catalogue(code).get(several, text)
    return text.format(**{"count": count, **values})


def N_(message: str) -> str:  # noqa: N802  # what gettext's tools look for
    """*message* as it is: a constant that `_` translates where it is shown."""
    return message
