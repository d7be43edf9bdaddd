"""Acceptance of single drafts from the mean number that is accepted in a step."""

import pytest

from sim.catalogue.drafter import Drafter
from sim.catalogue.value import Value


@pytest.mark.parametrize(
    ("drafts", "accepted", "probability"),
    [(1, 0.3, 0.3), (2, 0.75, 0.5), (3, 0.875, 0.5), (4, 4.0, 1.0), (3, 0.0, 0.0), (2, 1.44, 0.8)],
)
def test_the_mean_of_a_step_is_that_of_drafts_accepted_in_a_row(
    drafts: int, accepted: float, probability: float
) -> None:
    # p + p^2 + ... + p^k, for example 1/2 + 1/4 + 1/8
    def value(number: float) -> Value:
        return Value(value=number, source="test", kind="measured")

    drafter = Drafter(
        id="d",
        name="d",
        method="eagle",
        target="t",
        num_speculative_tokens=value(drafts),
        accepted_per_step={"task": value(accepted)},
    )
    assert drafter.acceptance("task") == pytest.approx(probability, abs=1e-5)
    with pytest.raises(KeyError):
        drafter.acceptance("other")
