"""Mark of compiled classes that Python code may subclass; without mypyc's own package it changes nothing."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

try:
    from mypy_extensions import mypyc_attr
except ImportError:

    def mypyc_attr(*attrs: str, **values: object) -> Callable[[T], T]:
        """Return the decorated class as it is: nothing is compiled here."""
        return lambda decorated: decorated


__all__ = ["mypyc_attr"]
