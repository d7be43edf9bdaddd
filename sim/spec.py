"""Base class of everything that is read from YAML."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Spec(BaseModel):
    """A frozen piece of a scenario or of the catalogue: an unknown key is an error, never ignored.

    The string under a field is its documentation, in the code and in the JSON schema that `gpufleet init` writes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True, defer_build=True)


def _whole(value: Any) -> Any:
    """1e6 is a whole number; 1.5, True and "2" are not."""
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    if isinstance(value, str):
        raise ValueError(f"a whole number is needed, not {value!r}")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError(f"a number is needed, not {value!r}")
    return value


Count = Annotated[int, BeforeValidator(_whole), Field(gt=0)]
WholeNumber = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Number = Annotated[float, BeforeValidator(_number)]
Positive = Annotated[float, BeforeValidator(_number), Field(gt=0)]
NonNegative = Annotated[float, BeforeValidator(_number), Field(ge=0)]
Fraction = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)]
