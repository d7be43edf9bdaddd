"""Base class of everything that is read from YAML."""

from math import inf
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class Spec(BaseModel):
    """A frozen piece of a scenario or of the catalogue: an unknown key is an error, never ignored.

    The string under a field is its documentation, in the code and in the JSON schema that `gpufleet init` writes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True, defer_build=True)


LARGEST, SMALLEST = 1e30, 1e-30
"""Beyond them products and quotients leave what a float can hold; no quantity of a data centre comes near."""
LARGEST_WHOLE = 10**18
"""Columns hold whole numbers in 64 bits."""


def within_reach(value: Any, most: float = LARGEST) -> Any:
    """*value*; a number beyond *most* raises ValueError."""
    if isinstance(value, int | float) and most < abs(value) < inf:
        raise ValueError(f"is too large: at most {most:g}")
    return value


def _whole(value: Any) -> Any:
    """1e6 is a whole number; 1.5, True and "2" are not."""
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    if isinstance(value, str):
        raise ValueError(f"a whole number is needed, not {value!r}")
    within_reach(value, LARGEST_WHOLE)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError(f"a number is needed, not {value!r}")
    return within_reach(value)


def _not_vanishing(value: float) -> float:
    if value < SMALLEST:
        raise ValueError(f"is too small: at least {SMALLEST:g}")
    return value


Count = Annotated[int, BeforeValidator(_whole), Field(gt=0)]
WholeNumber = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Number = Annotated[float, BeforeValidator(_number)]
Positive = Annotated[float, BeforeValidator(_number), Field(gt=0), AfterValidator(_not_vanishing)]
NonNegative = Annotated[float, BeforeValidator(_number), Field(ge=0)]
Fraction = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)]
