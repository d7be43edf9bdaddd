import pytest
from pydantic import ValidationError

from sim.records import Batch
from sim.steptime.affine import Affine

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
