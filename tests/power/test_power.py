from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.catalogue.gpu import Gpu
from sim.catalogue.server import Server
from sim.catalogue.value import Value
from sim.power import CapCurve, GpuPower, PoolPower, Power, load_law, load_power_coefficients, pool_power
from sim.records import LoadLaw
from sim.yamlio import read

DATA = Path(__file__).parents[2] / "data"
COEFFICIENTS = load_power_coefficients(DATA / "power.yaml")
GPU_IDS = sorted(path.stem for path in (DATA / "gpus").glob("*.yaml"))
FRACTIONS = st.floats(0, 1)


def card(name):
    return Gpu.model_validate(read(DATA / "gpus" / f"{name}.yaml").data)


def value(number):
    return Value(value=number, source="test", kind="computed")


def server(max_power_w=None):
    return Server(
        id="box",
        name="box",
        gpu_slots=value(8),
        link="pcie4-x16",
        base_power_w=value(1000),
        max_power_w=None if max_power_w is None else value(max_power_w),
        psu_efficiency=value(0.9),
    )


@pytest.mark.slow
@given(idle=st.floats(10, 100), more=st.floats(0, 300), duration_s=st.floats(1, 1e5), busy=FRACTIONS, load=FRACTIONS)
def test_mean_power_lies_between_idle_and_the_limit(idle, more, duration_s, busy, load):
    gpu = GpuPower(idle, idle + more)
    energy_j = gpu.energy_j(duration_s, busy * load * duration_s)
    assert energy_j == pytest.approx(((1 - busy * load) * idle + busy * load * gpu.limit_w) * duration_s)
    assert idle <= energy_j / duration_s * (1 + 1e-12)
    assert energy_j / duration_s <= gpu.limit_w * (1 + 1e-12)


@pytest.mark.slow
@given(
    name=st.sampled_from(GPU_IDS), compute=FRACTIONS, memory=FRACTIONS, more=FRACTIONS,
    tokens=st.floats(0, 1e5), further=st.floats(0, 1e5), busy=FRACTIONS,
)  # fmt: skip
def test_more_work_never_loads_less_and_never_beyond_the_limit(name, compute, memory, more, tokens, further, busy):
    law = load_law(card(name), COEFFICIENTS, None, 1e6, True)
    if law is None:
        return
    load = law.load(compute, memory, tokens, busy) * (1 - 1e-12)
    assert 0 <= load <= law.load(min(1, compute + more), memory, tokens, busy) <= 1
    assert load <= law.load(compute, min(1, memory + more), tokens, busy) <= 1
    assert load <= law.load(compute, memory, tokens + further, busy) <= 1
    assert load <= law.load(compute, memory, tokens, min(1, busy + more)) <= 1
    assert law.load(compute, memory, tokens, busy, busy) <= law.load(compute, memory, tokens, busy)
    assert law.load(0, 0, 0, 0) == 0


def test_kernels_that_run_draw_the_same_watts_under_a_cap():
    """A cap moves the limit, not what kernels that do nothing draw; at it the card slows."""
    gpu = card("rtx-3090")
    whole, capped = (load_law(gpu, COEFFICIENTS, cap).running * _span(gpu, cap) for cap in (None, 300))
    assert capped == pytest.approx(whole)
    limit = GpuPower.of(gpu, COEFFICIENTS, 220)
    assert 200 < limit.energy_j(1, load_law(gpu, COEFFICIENTS, 220).load(0, 0.5, 0)) <= 220


def _span(gpu, cap_w):
    power = GpuPower.of(gpu, COEFFICIENTS, cap_w)
    return power.limit_w - power.idle_w


def test_geforce_cards_idle_low_between_requests():
    """RTX 5090 with 23 GB loaded: 12 and 14 W; others keep a seventh of their limit."""
    assert GpuPower.of(card("rtx-5090"), COEFFICIENTS).idle_w < 30
    assert GpuPower.of(card("l40s"), COEFFICIENTS).idle_w > 40


@given(first=st.tuples(*[st.floats(0, 1e4)] * 2), second=st.tuples(*[st.floats(0, 1e4)] * 2))
def test_energy_of_two_intervals_is_that_of_both_together(first, second):
    pool = PoolPower(GpuPower(60, 400), 4, base_w=300, psu_efficiency=0.94)
    both = [a + b for a, b in zip(first, second, strict=True)]
    apart_j = [pool.gpu_energy_j(*first), pool.gpu_energy_j(*second)]
    assert sum(apart_j) == pytest.approx(pool.gpu_energy_j(*both), abs=1e-3)
    walls_j = pool.server_energy_j(first[0], apart_j[0]) + pool.server_energy_j(second[0], apart_j[1])
    assert walls_j == pytest.approx(pool.server_energy_j(both[0], sum(apart_j)), abs=1e-3)


def test_every_gpu_draws_less_than_its_limit_when_idle():
    for name in GPU_IDS:
        gpu = card(name)
        power = GpuPower.of(gpu, COEFFICIENTS)
        if gpu.tdp_w is None:
            assert power is None
            continue
        assert 0 < power.idle_w < power.limit_w == gpu.tdp_w.value
        assert power.idle_w >= (gpu.idle_w.value if gpu.idle_w else 0)


def test_every_gpu_of_a_family_exists():
    assert {gpu for family in COEFFICIENTS.families.values() for gpu in family.gpus} <= set(GPU_IDS)


def test_a_gpu_is_in_one_family_at_most_and_those_with_hbm_in_none():
    for name in GPU_IDS:
        gpu = card(name)
        families = [one for one, family in COEFFICIENTS.families.items() if family.has(gpu)]
        assert len(families) <= 1
        if gpu.memory_bytes_per_s.value > 1.8e12:
            assert not families
        if gpu.geforce or gpu.architecture in ("Ada Lovelace", "Turing"):
            assert families


def test_the_wall_sees_gpus_base_and_supply():
    pool = pool_power(Power(), card("a100-80gb-pcie"), COEFFICIENTS, 2, server(), servers_per_replica=0.25)
    assert pool.server_energy_j(10, 6000) == pytest.approx((6000 + 250 * 10) / 0.9)
    assert pool.peak_w == pytest.approx((2 * 300 + 250) / 0.9)


def test_without_a_server_the_gpus_are_all():
    pool = pool_power(Power(), card("rtx-4090"), COEFFICIENTS, 1)
    assert pool.server_energy_j(10, 1234) == 1234


def test_nameplate_power_does_not_follow_the_load():
    spec = Power(mode="nameplate", nameplate_w=10_000)
    pool = pool_power(spec, card("h100-80gb-sxm"), COEFFICIENTS, 8, server(max_power_w=10_200))
    assert pool.gpu_energy_j(3600, 0) == pool.gpu_energy_j(3600, 1800) == 8 * 700 * 3600
    assert pool.server_energy_j(3600, 0) == pool.server_energy_j(3600, 1e9) == 10_000 * 3600
    assert pool.peak_w == 10_000


def test_the_nameplate_is_the_servers_own_or_the_sum_of_its_parts():
    spec, gpu = Power(mode="nameplate"), card("h100-80gb-sxm")
    assert pool_power(spec, gpu, COEFFICIENTS, 4, server(10_200), servers_per_replica=0.5).peak_w == 5_100
    parts = pool_power(spec, gpu, COEFFICIENTS, 8, server())
    assert parts.peak_w == pytest.approx((8 * 700 + 1000) / 0.9)
    assert parts.server_energy_j(10, parts.gpu_energy_j(10, 0)) == pytest.approx(10 * parts.peak_w)


def test_a_server_of_unknown_base_power_has_only_a_nameplate():
    box = server(5000).model_copy(update={"base_power_w": None})
    assert pool_power(Power(), card("a100-80gb-pcie"), COEFFICIENTS, 8, box) is None
    assert pool_power(Power(mode="nameplate"), card("a100-80gb-pcie"), COEFFICIENTS, 8, box).peak_w == 5000


def test_nameplate_w_needs_mode_nameplate():
    with pytest.raises(ValidationError, match="nameplate_w needs mode: nameplate"):
        Power(nameplate_w=10_000)


def test_unknown_power_limit_means_unknown_power():
    unlimited = card("rtx-4090").model_copy(update={"tdp_w": None})
    assert pool_power(Power(), unlimited, COEFFICIENTS, 1) is None


def test_a_power_cap_slows_the_card_as_measured():
    assert COEFFICIENTS.speed(card("rtx-3090"), 220).value == 0.698  # 732.6 of 1050.1 tokens/s
    assert COEFFICIENTS.speed(card("rtx-3090"), 225).value == pytest.approx((0.698 + 0.758) / 2)
    assert COEFFICIENTS.speed(card("rtx-4090"), 1000).value == 1.0
    with pytest.raises(ValueError, match="below 190 W"):
        COEFFICIENTS.speed(card("rtx-3090"), 100)
    with pytest.raises(ValueError, match="there are of rtx-3090, rtx-4090, rtx-5090"):
        COEFFICIENTS.speed(card("l40s"), 300)


@pytest.mark.slow
@given(cap_w=st.floats(230, 600), further_w=st.floats(0, 300), load=FRACTIONS)
def test_a_lower_cap_never_draws_more_nor_works_faster(cap_w, further_w, load):
    gpu = card("rtx-4090")
    low, high = (GpuPower.of(gpu, COEFFICIENTS, cap) for cap in (cap_w, cap_w + further_w))
    assert low.limit_w <= min(high.limit_w, cap_w)
    assert low.energy_j(1, load) <= high.energy_j(1, load) <= GpuPower.of(gpu, COEFFICIENTS).energy_j(1, load)
    assert COEFFICIENTS.speed(gpu, cap_w).value <= COEFFICIENTS.speed(gpu, cap_w + further_w).value <= 1


@pytest.mark.parametrize(
    ("cap_w", "speed", "named"),
    [
        ((100, 200), (0.5, 0.6, 0.7), "speed"),
        ((100, 200), (0.7, 0.6), "speed"),
        ((100, 200), (0.7, 0.7), "speed"),
        ((200, 100), (0.6, 0.7), "cap_w"),
        ((200, 200), (0.6, 0.7), "cap_w"),
    ],
)
def test_measured_caps_and_speeds_rise(cap_w, speed, named):
    with pytest.raises(ValidationError, match=f"{named} needs one rising figure for each cap"):
        CapCurve(source="test", kind="measured", cap_w=cap_w, speed=speed)


def test_power_within_a_reach_keeps_the_idle_part():
    assert GpuPower(50.0, 250.0).within(0.25) == GpuPower(50.0, 100.0)


def test_idle_power_is_that_with_weights_loaded():
    # a limit of 400 W; 32 W without a model
    gpu = card("rtx-4090").model_copy(update={"tdp_w": value(400), "idle_w": value(32), "loaded_idle_w": value(48)})
    assert GpuPower.of(gpu, COEFFICIENTS) == GpuPower(48, 400)
    assert GpuPower.of(gpu, COEFFICIENTS, 300) == GpuPower.of(gpu, COEFFICIENTS, 300.0) == GpuPower(48, 300)
    assert GpuPower.of(gpu, COEFFICIENTS, 500) == GpuPower(48, 400)
    unknown = gpu.model_copy(update={"loaded_idle_w": None})
    share = COEFFICIENTS.loaded_idle_of(gpu).value
    assert 0.01 < share < 0.3
    assert GpuPower.of(unknown, COEFFICIENTS).idle_w == pytest.approx(max(32, share * 400))
    assert GpuPower.of(unknown.model_copy(update={"idle_w": value(200)}), COEFFICIENTS).idle_w == 200
    nameless = unknown.model_copy(update={"idle_w": None})
    assert GpuPower.of(nameless, COEFFICIENTS).idle_w == pytest.approx(share * 400)


@pytest.mark.parametrize("cap_w", [40, 48])
def test_a_cap_at_or_below_idle_leaves_no_load(cap_w):
    gpu = card("rtx-4090").model_copy(update={"loaded_idle_w": value(48)})
    assert load_law(gpu, COEFFICIENTS, cap_w) is None
    assert load_law(gpu, COEFFICIENTS, 49) is not None


def test_the_load_of_a_step_by_hand():
    law = LoadLaw(compute=0.5, memory=0.3, token=1e-4, running=0.2, waiting=0.25)
    # 0.2 of the time for all kernels, of which those that wait count a quarter: 0.2 (0.8 - 0.75 x 0.4) = 0.1
    sums = {(0.4, 0.5, 1000, 0.8, 0.4): 0.1 + 0.2 + 0.15 + 0.1, (0, 0, 0): 0.2, (1, 0, 0, 0): 0.5, (0, 1, 0, 0): 0.3}
    for work, z in sums.items():
        load = law.load(*work)
        assert load / (1 - load**4) ** 0.25 == pytest.approx(z)


def test_cap_w_needs_mode_load():
    with pytest.raises(ValidationError, match="cap_w needs mode: load"):
        Power(mode="nameplate", cap_w=300)
