"""Registered policies: user-defined classes that a scenario may name beside the built-in ones.

`sim.register` enters a class under a kind and a name; a package may offer classes as entry points of the group
`gpufleet.policies`, named like `routing.sticky`. A scenario names such a policy and its options as it does for a
built-in policy. The options are the parameters of the class that the program does not provide itself. A result records
the version of each policy that it depends on: a digest of the code that the policy runs.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter, signature
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from pydantic import GetCoreSchemaHandler, PydanticUserError, TypeAdapter, create_model
from pydantic_core import core_schema

from sim.message import Message
from sim.spec import Spec

GROUP = "gpufleet.policies"
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "routing": ("policy", ("pools", "rng")),
    "batching": ("policy", ("limits", "pool", "waiting")),
    "steptime": ("model", ("hardware",)),
    "autoscaling": ("policy", ()),
}
"""Kind -> scenario key that names the policy, and parameters that the program provides."""
METHODS: dict[str, tuple[tuple[str, ...], ...]] = {
    "routing": (("choose",),),
    "batching": (("order",), ("form", "may_admit", "commit", "evict")),
    "steptime": (("leap",),),
    "autoscaling": (("wanted",),),
}
"""Kind -> alternative tuples of methods, one of which a class must have completely."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Class with the kind and the name under which scenarios use it."""

    kind: str
    name: str
    make: Callable[..., Any]


class Registered(Spec):
    """Name and options of a registered policy in a scenario."""

    registration: ClassVar[Registration]

    def made(self, **given: Any) -> Any:
        """Return the policy, made with the scenario's options and with those of *given* that it has parameters for."""
        tag, _ = KINDS[self.registration.kind]
        own = type(self).own_options
        accepted = _parameters(self.registration.make)
        options = {name: getattr(self, name) for name in own if name != tag}
        policy = self.registration.make(**{name: given[name] for name in given if name in accepted}, **options)
        _check_methods(self.registration, policy)
        return policy

    own_options: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def is_named_by(cls, data: Any) -> bool:
        """Return whether *data* of a scenario names this policy; False for classes without a registration."""
        one = getattr(cls, "registration", None)
        return one is not None and isinstance(data, Mapping) and data.get(KINDS[one.kind][0]) == one.name

    def __reduce__(self) -> Any:
        return _unpickled, (self.registration, self.model_dump(exclude_unset=True))


def _unpickled(registration: Registration, data: dict[str, Any]) -> Registered:
    enter([registration])
    return _SPECS[registration.kind, registration.name].model_validate(data)


_SPECS: dict[tuple[str, str], type[Registered]] = {}
_BASES: dict[str, tuple[type[Registered], frozenset[str]]] = {}
"""Kind -> base class of its registered policies, and the names of the built-in ones."""


class Registry:
    """Annotation that opens a union of specs, discriminated by a key, to registered policies of *kind*."""

    def __init__(self, kind: str, base: type[Registered], builtin: Any) -> None:
        self.kind, self.tag = kind, KINDS[kind][0]
        _BASES[kind] = (base, frozenset(_tags(builtin, self.tag)))

    def members(self) -> list[type[Registered]]:
        """Return the registered policies that are loaded."""
        return [spec for (kind, _), spec in _SPECS.items() if kind == self.kind]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        inner = handler(source)
        shown = core_schema.simple_ser_schema("any")  # by the class of the value, so that registered ones fit too
        return core_schema.no_info_wrap_validator_function(self._validate, inner, serialization=shown)

    def _validate(self, value: Any, builtin: Callable[[Any], Any]) -> Any:
        if isinstance(value, Registered):
            return value
        spec = find(self.kind, value.get(self.tag)) if isinstance(value, Mapping) else None
        return builtin(value) if spec is None else spec.model_validate(value)


def _tags(union: Any, tag: str) -> Iterator[str]:
    if get_origin(union) is Annotated:
        union = get_args(union)[0]
    for spec in get_args(union) or (union,):
        yield from get_args(spec.model_fields[tag].annotation)


def find(kind: str, name: Any) -> type[Registered] | None:
    """Return the registered policy *name*, loaded from an entry point if necessary; None if built-in or unknown."""
    if not isinstance(name, str) or name in _BASES[kind][1]:
        return None
    if (kind, name) not in _SPECS and (point := _entry_points().get(f"{kind}.{name}")) is not None:
        enter([Registration(kind, name, point.load())])
    return _SPECS.get((kind, name))


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of installed packages by name, without loading them."""
    return {point.name: point for point in entry_points(group=GROUP)}


def enter(registrations: Iterable[Registration]) -> None:
    """Register policies in this process; a policy replaces an earlier one of the same kind and name.

    Raises ValueError for an unknown kind, a name that is in use, a missing method, or an option that a scenario cannot
    give.
    """
    for one in registrations:
        known = _SPECS.get((one.kind, one.name))
        if known is None or known.registration.make is not one.make:
            _SPECS[one.kind, one.name] = _spec(one)


def entered() -> list[Registration]:
    """Return all policies registered in this process."""
    return [spec.registration for spec in _SPECS.values()]


def _spec(one: Registration) -> type[Registered]:
    if one.kind not in KINDS:
        raise ValueError(Message("there are policies of the kinds {kinds}, not {kind!r}", ", ".join(KINDS), one.kind))
    tag, given = KINDS[one.kind]
    base, builtin = _BASES[one.kind]
    if not isinstance(one.name, str) or not one.name.strip():
        raise ValueError(Message("{kind}: a policy has a name, not {name!r}", one.kind, one.name))
    if one.name in builtin:
        raise ValueError(Message("{kind}: {name} is a built-in policy; another name is needed", one.kind, one.name))
    if not callable(one.make):
        raise ValueError(Message("{name}: a class is needed, not {make!r}", one.name, one.make))
    fields: dict[str, Any] = {tag: (Literal[one.name], ...)}
    if isinstance(one.make, type):  # the methods of a policy made by a function are known only after the call
        _check_methods(one, one.make)
    hints = _hints(one)
    for name, parameter in _parameters(one.make).items():
        if name in given:
            continue
        if name in base.model_fields:
            raise ValueError(
                Message(
                    "{name}: the option {option} is one that every policy of the kind {kind} has",
                    one.name,
                    name,
                    one.kind,
                )
            )
        if name.startswith("_") or hasattr(base, name):
            raise ValueError(
                Message("{name}: {option} cannot be the name of an option; another one is needed", one.name, name)
            )
        default = ... if parameter.default is Parameter.empty else parameter.default
        fields[name] = (_type_of_option(one, name, hints.get(name, Any)), default)
    build: Any = create_model  # as Any: mypy's pydantic plugin would infer a separate type
    spec: type[Registered] = build(one.name, __base__=base, __doc__=one.make.__doc__, **fields)
    spec.registration, spec.own_options = one, tuple(fields)
    return spec


def _check_methods(one: Registration, policy: Any) -> None:
    """Raise ValueError naming the methods that *policy*, made or its class, lacks."""
    missing = [[name for name in names if not _defines(policy, name)] for names in METHODS[one.kind]]
    if all(missing):
        wanted = " or ".join(", ".join(names) for names in missing)
        raise ValueError(
            Message(
                "{name}: the class {class_name} has no method {method}, which {kind} needs",
                one.name,
                _class_of(policy).__name__,
                wanted,
                one.kind,
            )
        )


def _class_of(policy: Any) -> type:
    return policy if isinstance(policy, type) else type(policy)


def _defines(policy: Any, method: str) -> bool:
    """Return whether *policy* has *method*, and not as an abstract one.

    Compiled classes list their abstract methods in `abstract_methods`.
    """
    made = _class_of(policy)
    owner = next((base for base in made.__mro__ if method in vars(base)), object)
    abstract = (*getattr(made, "__abstractmethods__", ()), *vars(owner).get("abstract_methods", ()))
    return callable(getattr(policy, method, None)) and method not in abstract


def _parameters(make: Callable[..., Any]) -> dict[str, Parameter]:
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {name: one for name, one in signature(make).parameters.items() if one.kind in named}


def _hints(one: Registration) -> dict[str, Any]:
    """Return the types of the parameters. Raises ValueError."""
    try:
        return get_type_hints(one.make.__init__ if isinstance(one.make, type) else one.make)  # type: ignore[misc]
    except NameError as error:
        raise ValueError(Message("{name}: the type of a parameter is not known: {error}", one.name, error)) from None
    except TypeError:  # a callable object
        return {}


def _type_of_option(one: Registration, name: str, found: Any) -> Any:
    """Return *found*, if a scenario can give a value of that type. Raises ValueError."""
    try:
        TypeAdapter(found)
    except PydanticUserError:
        shown = getattr(found, "__name__", found)
        raise ValueError(
            Message("{name}: a scenario cannot give the option {option} of the type {type}", one.name, name, shown)
        ) from None
    return found


PLAIN = (str, bytes, int, float, bool, type(None), tuple, list, dict, frozenset)
"""Types of values that are equal if they print the same."""


def versions(data: Any) -> dict[str, str]:
    """Return the versions of registered policies in the plain *data* of a fleet: `kind.name` -> digest of the code."""
    found: dict[str, str] = {}
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if value is None or isinstance(value, str | int | float):  # most values
            continue
        if key in KINDS and isinstance(value, dict):
            spec = find(str(key), value.get(KINDS[str(key)][0]))
            if spec is not None:
                found[f"{key}.{spec.registration.name}"] = version(spec.registration.make)
        if isinstance(value, dict | list | tuple):
            found |= versions(value)
    return found


def version(make: Any) -> str:
    """Return a digest of the code of a class or function.

    For a module in a file it is the digest of that file, for a package that of all its files. Definitions in a notebook
    or a script are followed from function to function instead, so that another cell or line does not change the digest.
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
    """Yield the byte code, constants and names of *thing*, and of what it refers to in its own module."""
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
    """Return whether *thing* is defined in the module of its *user*: a constant, a function or a class."""
    return not isinstance(thing, ModuleType) and getattr(thing, "__module__", user.__module__) == user.__module__


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_names, code.co_varnames)).encode()
    for constant in code.co_consts:
        yield from _code(constant) if isinstance(constant, CodeType) else [repr(constant).encode()]


__all__ = ["Registered", "Registration", "Registry", "enter", "entered", "versions"]
