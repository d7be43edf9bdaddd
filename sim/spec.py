"""Base class and number types of all models read from YAML."""

from collections.abc import Mapping
from inspect import signature
from math import inf
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticSerializationError

from sim.message import Message


class Spec(BaseModel):
    """Frozen model of a part of a scenario or of the catalogue; unknown keys are errors.

    The string under a field is its documentation, in the code and in the JSON schema that `gpufleet init` writes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True, defer_build=True)

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
    """Return *value* as a whole number: 1e6 is one; 1.5 stays as it is. Raises ValueError for True and "2"."""
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
    vars(_check)["__signature__"] = signature(_check)  # pydantic asks for it at each field

Count = Annotated[int, BeforeValidator(_whole), Field(gt=0)]
WholeNumber = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Number = Annotated[float, BeforeValidator(_number)]
Positive = Annotated[float, BeforeValidator(_number), Field(gt=0), AfterValidator(_not_vanishing)]
NonNegative = Annotated[float, BeforeValidator(_number), Field(ge=0)]
Fraction = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)]
