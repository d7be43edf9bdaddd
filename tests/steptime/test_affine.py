from math import inf, nan

import pytest
from pydantic import ValidationError

from sim.records import Batch, Leap
from sim.steptime.affine import Affine, UserStepTime

COEFFICIENTS = {"base_s": 0.016, "per_token_s": 9.0e-5, "per_context_token_s": 1.4e-7}


def test_a_step_is_base_plus_new_tokens_plus_contexts():
    batch = Batch(decode_seqs=3, kv_tokens=1000, prefill_seqs=1, prefill_tokens=50, prefill_context_tokens=200)
    leap = Affine(model="affine", **COEFFICIENTS).build().leap(batch)
    assert leap.first_s == pytest.approx(0.016 + 9.0e-5 * 53 + 1.4e-7 * 1200, abs=1e-15)
    assert leap.growth_s == pytest.approx(3 * 1.4e-7)


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_any_coefficient_may_be_zero_but_none_negative(name):
    assert getattr(Affine(model="affine", **{**COEFFICIENTS, name: 0}), name) == 0
    with pytest.raises(ValidationError):
        Affine(model="affine", **{**COEFFICIENTS, name: -1e-9})


def test_time_must_pass():
    with pytest.raises(ValidationError, match="all coefficients are 0"):
        Affine(model="affine", base_s=0, per_token_s=0, per_context_token_s=0)


class Stated:
    """Step-time model of a user that always answers the same."""

    def __init__(self, leap):
        self.answer = leap

    def leap(self, batch):
        return self.answer


class Windowed(Stated):
    window = 4096

    def breakdown(self, batch):
        return {"compute": 1.0}


@pytest.mark.parametrize(
    "leap",
    [Leap(1e-9), Leap(1.0, 0.0), Leap(1.0, 0.5), Leap(1.0, valid_steps=1), Leap(1.0, load=0.0), Leap(1.0, load=1.0)],
)
def test_possible_steps_of_a_user_pass(leap):
    assert UserStepTime(Stated(leap)).leap(Batch()) is leap


@pytest.mark.parametrize(
    ("leap", "told"),
    [(Leap(first_s), "a step lasts a finite time above 0") for first_s in (0.0, -1.0, inf, nan)]
    + [(Leap(1.0, growth_s), "growth_s is 0 or more") for growth_s in (-1e-9, inf, nan)]
    + [(Leap(1.0, valid_steps=steps), "it is 1 or more") for steps in (0, 0.5, nan)]
    + [(Leap(1.0, load=load), "load is from 0") for load in (-0.1, 1.1, nan)],
)
def test_impossible_steps_of_a_user_are_refused(leap, told):
    with pytest.raises(ValueError, match=f"step-time model Stated: .*{told}"):
        UserStepTime(Stated(leap)).leap(Batch())


def test_an_answer_that_is_no_leap_is_refused():
    with pytest.raises(TypeError, match=r"step-time model Stated: leap returns a sim\.Leap, not float"):
        UserStepTime(Stated(1.0)).leap(Batch())


def test_a_users_model_may_have_a_window_and_a_breakdown():
    plain, full = UserStepTime(Stated(Leap(2.0))), UserStepTime(Windowed(Leap(2.0)))
    assert (plain.window, full.window) == (None, 4096)
    assert full.breakdown(Batch()) == {"compute": 1.0}
    assert plain.breakdown(Batch()) == {"compute": 2.0, "memory": 0, "attention": 0, "link": 0, "overhead": 0}
