"""Which version of a registered policy a result rests on, as a digest of the code that it runs."""

import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from sim.registry.policies import KINDS, find

PLAIN = (str, bytes, int, float, bool, type(None), tuple, list, dict, frozenset)
"""Values that are the same wherever they print the same."""


def versions(data: Any) -> dict[str, str]:
    """`kind.name` of every registered policy that the *data* of a fleet names, with the digest of its code."""
    found: dict[str, str] = {}
    for key, value in data.items() if isinstance(data, Mapping) else enumerate(data):
        if isinstance(value, Mapping) and key in KINDS:
            spec = find(str(key), value.get(KINDS[str(key)][0]))
            if spec is not None:
                found[f"{key}.{spec.registration.name}"] = version(spec.registration.make)
        if isinstance(value, Mapping | list | tuple):
            found |= versions(value)
    return found


def version(make: Any) -> str:
    """A digest of the code of a class or function.

    Of a module that lies in a file it is that of the file, of a package that of all its files. What a notebook or a
    script defines is followed from function to function instead, so that another cell or line changes nothing.
    """
    digest = hashlib.sha256()
    module = sys.modules.get(make.__module__)
    file = getattr(module, "__file__", None)
    if make.__module__ == "__main__" or file is None:
        for piece in _pieces(make, set()):
            digest.update(piece)
    else:
        package = sys.modules.get(make.__module__.partition(".")[0])
        inside = getattr(package, "__path__", None)
        files = sorted(Path(inside[0]).rglob("*.py")) if inside else [Path(file)]
        for path in files:
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _pieces(thing: Any, seen: set[int]) -> Iterator[bytes]:
    """The byte code, constants and names of *thing*, and of what it refers to in its own module."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, staticmethod | classmethod):
        yield from _pieces(thing.__func__, seen)
    elif isinstance(thing, property):
        yield from _pieces([thing.fget, thing.fset, thing.fdel], seen)
    elif isinstance(thing, FunctionType):
        yield from _code(thing.__code__)
        yield from _pieces([thing.__defaults__, thing.__kwdefaults__], seen)
        used = [thing.__globals__.get(name) for name in thing.__code__.co_names]
        held = [cell.cell_contents for cell in thing.__closure__ or ()]
        yield from _pieces([one for one in used if _is_own(one, thing)] + held, seen)
    elif isinstance(thing, type):
        yield thing.__qualname__.encode()
        for base in thing.__bases__:
            yield from _pieces(base, seen) if base.__module__ == thing.__module__ else [base.__qualname__.encode()]
        hidden = ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__")
        for name, value in sorted(vars(thing).items()):
            if name not in hidden:
                yield name.encode()
                yield from _pieces(value, seen)
    elif isinstance(thing, list | tuple) and not all(isinstance(one, PLAIN) for one in thing):
        for one in thing:
            yield from _pieces(one, seen)
    elif isinstance(thing, PLAIN):
        yield repr(thing).encode()
    elif hasattr(thing, "tobytes"):
        yield thing.tobytes()


def _is_own(thing: Any, user: FunctionType) -> bool:
    """Whether *thing* is defined beside its *user*: a constant, a function or a class of its module."""
    return not isinstance(thing, ModuleType) and getattr(thing, "__module__", user.__module__) == user.__module__


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_names, code.co_varnames)).encode()
    for constant in code.co_consts:
        yield from _code(constant) if isinstance(constant, CodeType) else [repr(constant).encode()]
