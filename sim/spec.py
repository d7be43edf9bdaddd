"""Base class and number types of all models read from YAML."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from inspect import signature
from math import inf
from types import NoneType
from typing import Annotated, Any, ClassVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticSerializationError, core_schema

from sim.message import Message


class Spec(BaseModel):
    """Frozen model of a part of a scenario or of the catalogue; unknown keys are errors.

    The string under a field is its documentation, in the code and in the JSON schema that `gpufleet init` writes.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,
        # read for each field of each class; pydantic looks up an option that is not stated by way of an exception
        alias_generator=None,
        field_title_generator=None,
        protected_namespaces=(),
    )

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the model as plain data, by pydantic's *options*.

        Raises what a serialiser raises, also KeyboardInterrupt and the end of a time limit, which pydantic alone
        would replace by an error of its own.
        """
        try:
            return super().model_dump(**options)
        except PydanticSerializationError as error:
            raise error.__cause__ or error from None

    also_called: ClassVar[Mapping[str, str]] = {}
    """Word that readers expect as a key -> key that a message about the unknown word suggests."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Defer optional sections: a scenario has few of them, and compiling all takes a sixth of a short command."""
        for field in map(cls.model_fields.get, cls.__annotations__):  # inherited ones are deferred already
            if field is None or field.default is not None:
                continue
            validated = field.discriminator or any(hasattr(one, VALIDATING) for one in field.metadata)
            if not validated and _is_optional_section(field.annotation):
                field.metadata.append(Deferred(field.annotation))


VALIDATING = "__get_pydantic_core_schema__"
"""Attribute of annotations that validate a field."""


class Deferred:
    """Annotation of a field of type *kind*, whose validator is compiled when a value other than None is given."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    @cached_property
    def compiled(self) -> TypeAdapter[Any]:
        """Validator of the field."""
        return TypeAdapter(self._kind)

    @cached_property
    def _check(self) -> Callable[[Any], Any]:
        """Function that validates a value: that of the class itself where the field has one class."""
        single = [one for one in get_args(self._kind) if one is not NoneType]
        if len(single) == 1 and isinstance(single[0], type) and issubclass(single[0], Spec):
            return single[0].model_validate
        for one in _classes(self._kind):  # parts that all fields of their classes share; a JSON schema needs none
            if issubclass(one, Spec):
                one.model_rebuild()
        return self.compiled.validate_python

    def _validate(self, value: Any) -> Any:
        return None if value is None else self._check(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        shown = core_schema.simple_ser_schema("any")  # by the class of the value
        return core_schema.no_info_plain_validator_function(self._validate, serialization=shown)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        return handler(self.compiled.core_schema)


class Tagged(Deferred):
    """Annotation of a union of specs that the key *tag* tells apart; only those that values name are compiled."""

    def __init__(self, tag: str) -> None:
        super().__init__(None)
        self._tag = tag
        self._specs: dict[str, type[Spec]] = {}
        """Members of the union by their tags."""

    def _spec_of(self, value: Any) -> type[Spec] | None:
        """Return the member of the union that *value* names or is; None if there is none."""
        if isinstance(value, dict):
            name = value.get(self._tag)
            return self._specs.get(name) if isinstance(name, str) else None
        return next((spec for spec in self._specs.values() if isinstance(value, spec)), None)

    def _validate(self, value: Any) -> Any:
        if (spec := self._spec_of(value)) is not None:
            with suppress(ValidationError):  # the union reports it, with the tag in the place
                return spec.model_validate(value)
        return self._check(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        self._kind = Annotated[source, Field(discriminator=self._tag)]
        for spec in get_args(source):
            self._specs |= dict.fromkeys(get_args(spec.model_fields[self._tag].annotation), spec)
        return super().__get_pydantic_core_schema__(source, handler)


def _is_optional_section(kind: Any) -> bool:
    return NoneType in get_args(kind) and any(issubclass(one, Spec) for one in _classes(kind))


def _classes(kind: Any) -> Iterator[type]:
    """Yield the classes that the type *kind* names, but for those of unions that are `Tagged`."""
    if isinstance(kind, type):
        yield kind
    parts = get_args(kind)
    for part in () if any(isinstance(one, Tagged) for one in parts) else parts:
        yield from _classes(part)


LARGEST, SMALLEST = 1e30, 1e-30
"""Bounds of numbers: beyond them products and quotients exceed the range of floats; no quantity of a data centre
does."""
LARGEST_WHOLE = 10**18
"""Largest whole number: columns hold whole numbers in 64 bits."""


def within_reach(value: Any, most: float = LARGEST) -> Any:
    """Return *value*. Raises ValueError for a finite number beyond *most*."""
    if isinstance(value, int | float) and most < abs(value) < inf:
        raise ValueError(Message("is too large: at most {limit:g}", most))
    return value


def _whole(value: Any) -> Any:
    """Return a float without fraction as int, and any other number unchanged. Raises ValueError for True and "2"."""
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    if isinstance(value, str):
        raise ValueError(Message("a whole number is needed, not {value!r}", value))
    within_reach(value, LARGEST_WHOLE)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError(Message("a number is needed, not {value!r}", value))
    return within_reach(value)


def _not_vanishing(value: float) -> float:
    if value < SMALLEST:
        raise ValueError(Message("is too small: at least {limit:g}", SMALLEST))
    return value


for _check in (_whole, _number, _not_vanishing):
    vars(_check)["__signature__"] = signature(_check)  # pydantic would inspect the function again at each field

Count = Annotated[int, BeforeValidator(_whole), Field(gt=0)]
WholeNumber = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Number = Annotated[float, BeforeValidator(_number)]
Positive = Annotated[float, BeforeValidator(_number), Field(gt=0), AfterValidator(_not_vanishing)]
NonNegative = Annotated[float, BeforeValidator(_number), Field(ge=0)]
Fraction = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)]
