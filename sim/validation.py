"""Pydantic's errors in plain words: place, mistake, and the key or value that was probably meant."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sim.message import OR, Message, joined
from sim.registry import Registered, Registry
from sim.spec import Spec

Place = tuple[str | int, ...]

ALMOST = 0.85
"""Similarity above which an unknown key counts as a misspelling of a known one."""


@dataclass(frozen=True, slots=True)
class ValidationIssue:
    """Mistake at a place of the data, before its file and line are known."""

    place: Place
    message: str
    lacks: tuple[str, ...] = ()
    """Keys whose presence would resolve the issue, beside or within the place; a dotted key is a path from the top of
    the scenario or of a service (`workload.tenants`)."""


def dotted(place: Place) -> str:
    """Return `("fleets", 0, "name")` as `fleets.0.name`."""
    return ".".join(map(str, place))


def nearest(wrong: object, known: Iterable[str]) -> str:
    """Return the known name most similar to *wrong*; empty if none is similar."""
    names = list(known)
    near = get_close_matches(str(wrong).lower(), {name.lower() for name in names}, n=1, cutoff=0.6)
    alike = [name for name in names if [name.lower()] == near]
    return max(alike, key=lambda name: SequenceMatcher(None, str(wrong), name).ratio(), default="")


def did_you_mean(wrong: object, known: Iterable[str], listed: int = 12) -> str:
    """Compose `; did you mean X?`, or the list of known names if at most *listed* are known."""
    names = list(known)
    if near := nearest(wrong, names):
        return Message("; did you mean {near}?", near)
    return Message("; known here: {allowed}", ", ".join(names)) if 0 < len(names) <= listed else ""


def not_among(value: object, allowed: Sequence[str]) -> str:
    """Compose `must be one of ..., not X`, with the nearest of *allowed*."""
    near = nearest(value, allowed)
    hint = Message("; did you mean {near}?", near) if near else ""
    return Message("must be one of {allowed}, not {value}{hint}", ", ".join(allowed), _show(value), hint)


def validation_issues(error: ValidationError, spec: Any, data: Any) -> list[ValidationIssue]:
    """Translate pydantic's errors on *data* into plain sentences at places that exist in the file.

    *spec* is what *data* is read as: a model, or a union of models.
    """
    found = []
    # where a list or one of several words is allowed, text is reported as a wrong word
    for detail in sorted(error.errors(include_url=False), key=_text_instead_of_a_list):
        place, kinds = _locate(spec, detail["loc"], data)
        found.append(_translate(spec, place, kinds, detail))
    return _deepest_per_value(found)


def _text_instead_of_a_list(detail: ErrorDetails) -> bool:
    return detail["type"] in ("list_type", "tuple_type") and isinstance(detail["input"], str)


def _deepest_per_value(found: list[ValidationIssue]) -> list[ValidationIssue]:
    """Keep one issue per value that fits no member of a plain union: that of the member matched deepest."""
    first: dict[Place, ValidationIssue] = {}
    for issue in found:
        first.setdefault(issue.place, issue)
    above = {place[:depth] for place in first for depth in range(len(place))}
    return [issue for place, issue in first.items() if place not in above]


def _translate(spec: Any, place: Place, kinds: list[Any], detail: ErrorDetails) -> ValidationIssue:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return ValidationIssue(place, Message("unknown key{hint}", _meant_key(spec, place, kinds)))
    if kind == "union_tag_invalid":
        key = context["discriminator"].strip("'")
        builtin = [tag.strip().strip("'") for tag in context["expected_tags"].split(",")]
        expected = list(dict.fromkeys([*builtin, *_tags(kinds, key)]))
        shown = _show(value.get(key) if isinstance(value, dict) else context["tag"])
        return ValidationIssue(
            (*place, key),
            Message("unknown {key} {value}{hint}", key, shown, did_you_mean(context["tag"], expected)),
        )
    if kind == "union_tag_not_found":
        key = context["discriminator"].strip("'")
        return ValidationIssue(place, Message("{key} is missing: one of {allowed}", key, ", ".join(_tags(kinds, key))))
    if kind == "literal_error":
        return ValidationIssue(place, not_among(value, [str(choice) for choice in _choices(kinds)]))
    return ValidationIssue(place, _sentence(kind, value, context, detail["msg"]))


def _meant_key(spec: Any, place: Place, kinds: list[Any]) -> str:
    """Compose the hint for an unknown key.

    Suggested is a key of the same mapping with the same meaning, letters, words or beginning, or almost the same
    spelling; else a key elsewhere in *spec* of that name, or with almost the same spelling where none of the same
    mapping is similar; else a similar key of the same mapping.
    """
    here = dict.fromkeys(name for holder in _specs(kinds) for name in holder.model_fields)
    wrong = str(place[-1])
    for holder in _specs(kinds):
        if issubclass(holder, Spec) and wrong in holder.also_called:
            return Message("; did you mean {near}?", holder.also_called[wrong])
    swapped = [name for name in here if sorted(name) == sorted(wrong)]
    longer = [name for name in here if set(wrong.split("_")) < set(name.split("_")) or name.startswith(wrong)]
    if swapped or len(longer) == 1:
        return Message("; did you mean {near}?", (swapped or longer)[0])
    if not get_close_matches(wrong, here, n=1, cutoff=ALMOST):
        known = _places_by_key(spec)
        almost = [] if wrong in known or get_close_matches(wrong, here) else get_close_matches(wrong, known, 1, ALMOST)
        elsewhere = known.get(almost[0] if almost else wrong, ())
        if elsewhere and tuple(0 if isinstance(step, int) else step for step in place) not in elsewhere:
            near = sorted(elsewhere, key=lambda path: (-_common_length(path, place), _depth(path), dotted(path)))
            return Message("; did you mean {near}?", joined(OR, [dotted(path) for path in near[:2]]))
    return did_you_mean(wrong, here, listed=16)


def meant_name(unknown: ValidationIssue) -> str:
    """Return the key of the same mapping, or the kind, that the hint of an *unknown* one suggests; empty without."""
    hint = unknown.message.values["hint"] if isinstance(unknown.message, Message) else ""
    near = hint.values.get("near", "") if isinstance(hint, Message) else ""
    return "" if "." in near else near  # a dotted one is in another mapping


def _depth(path: Place) -> int:
    return sum(isinstance(step, str) for step in path)


def _common_length(one: Place, other: Place) -> int:
    """Return the length of the common prefix of two places."""
    return next((depth for depth, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)


@cache
def _places_by_key(spec: Any) -> dict[str, tuple[Place, ...]]:
    """Return the places at which each key of *spec* may be, with index 0 for list items."""
    found: dict[str, list[Place]] = {}
    for place in _places(spec, (), frozenset()):
        found.setdefault(str(place[-1]), []).append(place)
    return {key: tuple(dict.fromkeys(places)) for key, places in found.items()}


def _places(kind: Any, above: Place, within: frozenset[Any]) -> Iterator[Place]:
    for member in _flatten(kind):
        if get_origin(member) in (list, tuple):
            yield from _places(get_args(member)[0], (*above, 0), within)
        for spec in _specs([member]) if member not in within else ():
            for name, field in spec.model_fields.items():
                yield (*above, name)
                yield from _places(field.annotation, (*above, name), within | {member})


def _sentence(kind: str, value: Any, context: dict[str, Any], message: str) -> str:
    shown = _show(value)
    match kind:
        case "missing":
            return "is missing"
        case "greater_than":
            return Message("must be above {limit:g}, not {value}", context["gt"], shown)
        case "greater_than_equal":
            return Message("must be {limit:g} or more, not {value}", context["ge"], shown)
        case "less_than" if context["lt"] == 1 and isinstance(value, int | float) and 2 < value < 100:
            return Message("must be below 1, not {value}: {value} % is {fraction:g}", shown, value / 100)
        case "less_than":
            return Message("must be below {limit:g}, not {value}", context["lt"], shown)
        case "less_than_equal" if context["le"] == 1 and isinstance(value, int | float) and 2 < value <= 100:
            return Message("must be at most 1, not {value}: {value} % is {fraction:g}", shown, value / 100)
        case "less_than_equal":
            return Message("must be at most {limit:g}, not {value}", context["le"], shown)
        case "finite_number":
            return Message("must be a finite number, not {value}", shown)
        case "int_from_float" | "int_type" | "int_parsing":
            return Message("a whole number is needed, not {value}", shown)
        case "float_type" | "float_parsing":
            return Message("a number is needed, not {value}", shown)
        case "bool_type" | "bool_parsing":
            return Message("true or false is needed, not {value}", shown)
        case "datetime_type" | "datetime_parsing" | "datetime_from_date_parsing":
            return Message("a date and a time are needed, such as 2026-07-01T08:00:00, not {value}", shown)
        case "date_type" | "date_parsing" | "date_from_datetime_parsing":
            return Message("a date like 2027-01-31 is needed, not {value}", shown)
        case "string_type":
            return Message("text is needed, not {value}", shown) + (
                " (put it in quotes)" if isinstance(value, int | float) else ""
            )
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return Message("at most {limit} characters, not {count}", context["max_length"], len(value))
        case "too_short":
            return (
                "must not be empty"
                if context["min_length"] == 1
                else Message("needs at least {count} items", context["min_length"])
            )
        case "too_long":
            return Message("has more than {limit} items", context["max_length"])
        case "list_type" | "tuple_type":
            return Message("a list is needed, not {value}", shown)
        case "dict_type" | "model_type" | "model_attributes_type" | "mapping_type":
            return Message("a mapping (key: value) is needed, not {value}", shown)
        case "value_error" | "assertion_error":
            return str(context["error"])
        case _:
            return Message("{needed}, not {value}", message[:1].lower() + message[1:], shown)


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, float):
        return f"{value:g}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _locate(spec: Any, loc: tuple[int | str, ...], data: Any) -> tuple[Place, list[Any]]:
    """Return the place without pydantic's union tags and class names, and the types that could be there.

    For an unknown key, the types are those of the mapping that contains it.
    """
    place: list[str | int] = []
    kinds: list[Any] = [spec]
    holders = kinds
    for step in loc:
        if step == "[key]":  # pydantic's mark: the key itself is wrong, not the value under it
            kinds = [get_args(kind)[0] for kind in holders if get_origin(kind) is dict]
            continue
        holders = kinds = _registered_kind(_members(kinds), data)
        inside = _children(kinds, step)
        chosen = [kind for kind in _specs(kinds) if _is_mark(kind, step)]
        is_key = isinstance(data, dict) and step in data
        if chosen and not (is_key and inside) and len(kinds) > 1:
            kinds = chosen
        elif inside:
            place.append(step)
            kinds, data = inside, _child(data, step)
        elif is_key or (isinstance(data, list) and isinstance(step, int)):
            place.append(step)
            data = _child(data, step)
    return tuple(place), _members(kinds)


def _child(data: Any, step: str | int) -> Any:
    if isinstance(data, dict):
        return data.get(step)
    return data[step] if isinstance(data, list) and isinstance(step, int) and step < len(data) else None


def _members(kinds: list[Any]) -> list[Any]:
    return [member for kind in kinds for member in _flatten(kind)]


def _flatten(kind: Any) -> Iterator[Any]:
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _flatten(get_args(kind)[0])
        yield from _registered(get_args(kind)[1:])
    elif origin in (Union, UnionType):
        for member in get_args(kind):
            yield from _flatten(member)
    elif kind is not type(None):
        yield kind


def _registered(marks: Iterable[Any]) -> list[Any]:
    """Return the registered policies that a union annotated with *marks* accepts."""
    return [spec for mark in marks if isinstance(mark, Registry) for spec in mark.members()]


def _registered_kind(kinds: list[Any], data: Any) -> list[Any]:
    """Return the registered policy that *data* names, whose errors have no union tag; else all *kinds*."""
    named = [kind for kind in _specs(kinds) if issubclass(kind, Registered) and kind.is_named_by(data)]
    return named or kinds


def _specs(kinds: list[Any]) -> list[type[BaseModel]]:
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]


def _children(kinds: list[Any], step: str | int) -> list[Any]:
    """Return the types of the value under key or index *step*."""
    found = []
    for kind in kinds:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (list, tuple) and isinstance(step, int):
            found.append(arguments[0])
        elif origin is dict:
            found.append(arguments[1])
    for field in (spec.model_fields[str(step)] for spec in _specs(kinds) if step in spec.model_fields):
        found += [field.annotation, *_registered(field.metadata)]
    return found


def _is_mark(spec: type[BaseModel], step: str | int) -> bool:
    """Return True if pydantic adds *step* to a path to denote that it tried *spec*."""
    literals = [field.annotation for field in spec.model_fields.values() if get_origin(field.annotation) is Literal]
    return step == spec.__name__ or any(step in get_args(literal) for literal in literals)


def known_keys(spec: type[BaseModel], place: Place) -> list[str] | None:
    """Return the keys allowed in a mapping at *place* of *spec*, or None if any key is allowed.

    The list is empty where only a plain value is allowed.
    """
    kinds: list[Any] = [spec]
    for step in place:
        kinds = _children(_members(kinds), step)
    members = _members(kinds)
    if not members or any(get_origin(kind) is dict for kind in members):
        return None
    return [name for kind in _specs(members) for name in kind.model_fields]


def _tags(kinds: list[Any], key: str) -> list[str]:
    return [str(tag) for spec in _specs(kinds) for tag in get_args(spec.model_fields[key].annotation)]


def _choices(kinds: list[Any]) -> list[Any]:
    return [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
