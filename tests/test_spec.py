"""The base class of what is read from YAML."""

import signal
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, PlainSerializer, ValidationError

from sim.spec import Count, Deferred, Spec, Tagged


def interrupted_while(value: float) -> float:
    signal.raise_signal(signal.SIGINT)
    return value


class Part(Spec):
    value: Annotated[float, PlainSerializer(interrupted_while)]


class Whole(Spec):
    part: Part


def test_an_interruption_while_a_model_is_written_out_stays_one() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            Whole(part=Part(value=1.0)).model_dump(mode="json")
    finally:
        signal.signal(signal.SIGINT, before)


class Bought(Spec):
    kind: Literal["buy"]
    gpus: Count = 1


class Rented(Spec):
    kind: Literal["rent"]
    prices: tuple[Bought, ...] = ()


Cost = Annotated[Bought | Rented, Field(discriminator="kind")]


class Eager(Spec):
    cost: Cost | None
    parts: tuple[Bought | float, ...] | None


class Omittable(Spec):
    cost: Cost | None = None
    parts: tuple[Bought | float, ...] | None = None


class OneByOne(Spec):
    cost: Annotated[Bought | Rented, Tagged("kind")] | None
    parts: tuple[Bought | float, ...] | None


@pytest.mark.parametrize("late", [Omittable, OneByOne])
@pytest.mark.parametrize(
    "data",
    [
        {"cost": None, "parts": None},
        {"cost": {"kind": "rent", "prices": [{"kind": "buy", "gpus": 2.0}]}, "parts": [1, {"kind": "buy"}]},
        {"cost": Rented(kind="rent"), "parts": (Bought(kind="buy"),)},
        {
            "cost": {"kind": "rent", "prices": [{"kind": "buy", "gpus": "2"}, 3]},
            "parts": ["x", {"kind": "buy", "b": 1}],
        },
        {"cost": {"kind": "lease"}, "parts": 3},
        {"cost": {}, "parts": {}},
        {"cost": {"kind": ["rent"]}, "parts": None},
        {"cost": {"kind": "buy", "prices": []}, "parts": None},
        {"cost": 1, "parts": [None]},
    ],
)
def test_deferred_sections_are_checked_and_dumped_like_all_others(data: dict[str, Any], late: type[Spec]) -> None:
    def outcome(kind: type[Spec]) -> Any:
        try:
            made = kind.model_validate(data)
        except ValidationError as error:
            return [{**one, "ctx": str(one.get("ctx"))} for one in error.errors()]
        return made.model_dump(mode="json"), made.model_dump(exclude_unset=True)

    assert outcome(late) == outcome(Eager)


def test_the_schema_of_a_tagged_union_is_that_of_a_discriminated_one() -> None:
    schema, discriminated = OneByOne.model_json_schema(), Eager.model_json_schema()
    assert schema | {"title": ""} == discriminated | {"title": ""}


def test_a_deferred_section_is_compiled_when_it_is_first_given() -> None:
    class Placed(Spec):
        cost: Cost | None = None
        name: str | None = None

    (deferred,) = Placed.model_fields["cost"].metadata
    assert isinstance(deferred, Deferred)
    assert not Placed.model_fields["name"].metadata
    Placed.model_validate({"cost": None, "name": "a"})
    assert "compiled" not in vars(deferred)
    assert Placed.model_validate({"cost": {"kind": "buy"}}).cost == Bought(kind="buy")
    assert "compiled" in vars(deferred)


def test_only_the_named_member_of_a_tagged_union_is_compiled() -> None:
    class Fixed(Spec):
        law: Literal["fixed"]

    class Drawn(Spec):
        law: Literal["drawn"]

    class Length(Spec):
        tokens: Annotated[Fixed | Drawn, Tagged("law")]

    assert Length.model_validate({"tokens": {"law": "drawn"}}).tokens == Drawn(law="drawn")
    assert Drawn.__pydantic_complete__
    assert not Fixed.__pydantic_complete__
