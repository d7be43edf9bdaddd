"""MIG slices: where the driver places them, and the part of the card that each is."""

from fractions import Fraction

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.gpu import Mig, MigProfile, sliced, sms_share

CATALOG = load_catalog()
A100 = "a100-80gb-sxm"


def test_a_slice_is_its_part_of_the_card() -> None:
    card, half = CATALOG.gpu(A100), sliced(CATALOG.gpu(A100), "3g.40gb")
    assert half.fp16_flops.value == pytest.approx(card.fp16_flops.value * 42 / 108)
    assert half.memory_bytes_per_s.value == pytest.approx(card.memory_bytes_per_s.value / 2)
    assert half.memory_bytes.value == pytest.approx(card.memory_bytes.value / 2, rel=0.03)
    assert (half.id, half.mig) == (A100, None)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (["1g.10gb"] * 7, True),
        (["1g.10gb"] * 8, False),
        (["3g.40gb", "3g.40gb"], True),
        (["3g.40gb", "4g.40gb"], True),
        (["4g.40gb", "4g.40gb"], False),
        (["3g.40gb", "3g.40gb", "1g.10gb"], False),
        (["4g.40gb", "2g.20gb", "1g.10gb"], True),
        (["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], True),
        (["1g.20gb"] * 4, True),
        (["7g.80gb", "1g.10gb"], False),
    ],
)
def test_the_driver_places_some_combinations_and_refuses_others(wanted: list[str], fits: bool) -> None:
    mig = CATALOG.gpu("a100-80gb-pcie").mig
    assert mig is not None
    assert mig.fits(tuple(wanted)) is fits


@pytest.mark.parametrize(
    ("wanted", "cards"),
    [
        ({"1g.10gb": 8}, 2),
        ({"3g.40gb": 1, "1g.10gb": 3}, 1),
        ({"3g.40gb": 1, "1g.10gb": 5}, 2),
        ({"4g.40gb": 2, "3g.40gb": 2}, 2),
        ({"4g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1}, 1),
        ({"7g.80gb": 2, "1g.10gb": 1}, 3),
    ],
)
def test_slices_of_several_profiles_are_placed_as_the_driver_allows(wanted: dict[str, int], cards: int) -> None:
    mig = CATALOG.gpu(A100).mig
    assert mig is not None
    assert mig.cards(wanted) == cards


# a card of 4 compute and 4 memory slices: halves start at 0 or 2, quarters anywhere
QUARTER = MigProfile(compute_slices=1, memory_slices=1, starts=(0, 1, 2, 3), copy_engines=1)
HALF = MigProfile(compute_slices=2, memory_slices=2, starts=(0, 2), copy_engines=1)
WIDE = MigProfile(compute_slices=1, memory_slices=2, starts=(0, 2), copy_engines=1, sms=13)
SMALL = Mig(
    source="test",
    kind="quoted",
    compute_slices=4,
    memory_slices=4,
    sms_per_slice=10,
    profiles={"1g.10gb": QUARTER, "2g.20gb": HALF, "1g.20gb": WIDE},
)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ((), True),
        (("2g.20gb", "2g.20gb"), True),
        (("1g.10gb", "2g.20gb", "1g.10gb"), True),
        (("1g.10gb", "1g.10gb", "1g.10gb", "2g.20gb"), False),
        (("1g.20gb", "1g.20gb"), True),
        (("1g.20gb", "1g.20gb", "1g.10gb"), False),  # compute is left, memory is not
    ],
)
def test_slices_take_compute_and_memory(wanted: tuple[str, ...], fits: bool) -> None:
    assert SMALL.fits(wanted) is fits


@pytest.mark.parametrize(
    ("wanted", "cards"),
    [
        ({"1g.10gb": 4}, 1),
        ({"1g.10gb": 5}, 2),
        ({"2g.20gb": 1, "1g.10gb": 2}, 1),
        ({"2g.20gb": 1, "1g.10gb": 3}, 2),
        ({"2g.20gb": 3, "1g.10gb": 2}, 2),
        ({"2g.20gb": 3, "1g.10gb": 6}, 3),
        ({"2g.20gb": 3, "1g.10gb": 7}, 4),
    ],
)
def test_cards_are_filled_one_after_the_other(wanted: dict[str, int], cards: int) -> None:
    assert SMALL.cards(wanted) == cards


def test_a_slice_has_its_share_of_the_cost_and_of_the_multiprocessors() -> None:
    assert (SMALL.weight("1g.10gb", True), SMALL.weight("2g.20gb", True)) == (Fraction(1, 4), Fraction(1, 2))
    assert (SMALL.weight("1g.20gb", True), SMALL.weight("1g.20gb", False)) == (Fraction(1, 2), Fraction(1, 4))
    assert [SMALL.sms(name) for name in SMALL.profiles] == [10, 20, 13]
    card = CATALOG.gpu(A100).model_copy(update={"mig": SMALL})
    assert sms_share(card, "2g.20gb") == pytest.approx(20 / 108)
    assert sms_share(card.model_copy(update={"sm_count": None}), "2g.20gb") == 0.5
    for gpu in (card, card.model_copy(update={"mig": None})):
        with pytest.raises(KeyError):
            sms_share(gpu, "7g.80gb")


def test_a_slice_scales_each_figure_by_what_it_owns() -> None:
    card = CATALOG.gpu(A100)
    part = sliced(card.model_copy(update={"mig": SMALL}), "2g.20gb")
    assert part.tdp_w is not None
    assert card.tdp_w is not None
    assert part.tdp_w.value == pytest.approx(card.tdp_w.value * 20 / 108)
    assert part.memory_bytes.value == pytest.approx(card.memory_bytes.value / 2)
    assert part.memory_nominal_gib.value == 20
    assert part.sm_count is not None
    assert part.sm_count.value == 20
    with pytest.raises(KeyError):
        sliced(card, "2g.21gb")
