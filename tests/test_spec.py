"""The base class of what is read from YAML."""

import signal
from typing import Annotated

import pytest
from pydantic import PlainSerializer

from sim.spec import Spec


def interrupted_while(value: float) -> float:
    signal.raise_signal(signal.SIGINT)
    return value


class Part(Spec):
    value: Annotated[float, PlainSerializer(interrupted_while)]


class Whole(Spec):
    part: Part


def test_an_interruption_while_a_model_is_written_out_stays_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        Whole(part=Part(value=1.0)).model_dump(mode="json")
