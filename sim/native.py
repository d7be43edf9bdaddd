"""Decorator `mypyc_attr`, which sets properties of compiled classes; without mypy_extensions it changes nothing.

`acyclic` classes have no part in garbage collection: no reference leads from an instance back to itself.
`allow_interpreted_subclasses` marks those that Python code may subclass.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def _unchanged(*attrs: str, **values: object) -> Callable[[T], T]:
    """Return a decorator that returns the class as it is: nothing is compiled here."""
    return lambda decorated: decorated


try:
    from mypy_extensions import mypyc_attr
except ImportError:
    mypyc_attr = _unchanged

__all__ = ["mypyc_attr"]
