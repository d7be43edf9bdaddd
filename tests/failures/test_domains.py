"""Components that fail: times to failure and of repair by their laws, and the replicas that need each."""

import numpy as np
import pytest

from sim.failures import (
    ComponentSpec,
    FailureSpec,
    FailureTimes,
    ServerLayout,
    SpotInterruptions,
    domains_of,
)

LAWS = [
    FailureTimes(100, 10),
    FailureTimes(100, 10, shape=3),
    FailureTimes(100, 10, shape=0.7, repair="lognormal", repair_cv=0.5),
    FailureTimes(100, 10, repair="fixed", part_share=0.25, part_s=40),
]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_outages_have_the_means_that_availability_rests_on(law: FailureTimes) -> None:
    rng = np.random.default_rng(1)
    up, down = np.array([law.outage(rng) for _ in range(20_000)]).T
    assert up.mean() == pytest.approx(100, abs=4 * up.std() / 20_000**0.5)
    # a share of repairs waits for a part
    expected = 10 + law.part_share * law.part_s
    assert down.mean() == pytest.approx(expected, abs=max(1e-9, 4 * down.std() / 20_000**0.5))
    assert law.availability == pytest.approx(100 / (100 + expected))


def test_another_law_meets_the_same_luck() -> None:
    once, twice = (FailureTimes(mtbf, 10).outage(np.random.default_rng(7)) for mtbf in (100, 200))
    assert (2 * once[0], once[1]) == pytest.approx(twice)
    longer, later = np.random.default_rng(7), np.random.default_rng(7)
    FailureTimes(100, 10).outage(longer)
    FailureTimes(100, 10, repair="fixed", part_share=1, part_s=5).outage(later)
    assert longer.random() == later.random()


def test_a_server_takes_its_replicas_along_and_a_rack_its_servers() -> None:
    law = FailureTimes(1, 1)
    layout = ServerLayout(5, 4, replicas_per_server=2)
    held = {one.name: one.replicas for one in domains_of({"server": law, "rack": law, "site": law}, layout, 2)}
    assert held == {
        "server 0": (0, 1), "server 1": (2, 3), "server 2": (4,),
        "rack 0": (0, 1, 2, 3), "rack 1": (4,), "site 0": (0, 1, 2, 3, 4),
    }  # fmt: skip
    assert [one.replicas for one in domains_of({"gpu": law}, ServerLayout(2, 3), 1)] == [(0,)] * 3 + [(1,)] * 3
    wide = ServerLayout(2, 16, servers_per_replica=2)
    assert [one.replicas for one in domains_of({"nic": law}, wide, 1)] == [(0,), (0,), (1,), (1,)]


def test_a_component_in_hours_is_a_law_in_seconds() -> None:
    spec = ComponentSpec(
        mtbf_h=100, repair_h=2, shape=1.5, repair="lognormal", repair_cv=0.5, part_share=0.25, part_h=48
    )
    assert spec.law(50) == FailureTimes(180_000, 7200, 1.5, "lognormal", 0.5, 0.25, 172_800)
    assert list(FailureSpec(gpu=spec, replica=spec).components) == ["replica", "gpu"]


def test_quantiles_of_repairs_by_hand() -> None:
    assert FailureTimes(100, 10).down_s(0.5) == pytest.approx(10 * np.log(2))
    assert FailureTimes(100, 10, repair="fixed").down_s(0.9) == 10
    assert FailureTimes(100, 0, repair="lognormal").down_s(0.9) == 0
    # the median of a lognormal law is its mean over the root of 1 + cv^2
    assert FailureTimes(100, 10, repair="lognormal", repair_cv=1.0).down_s(0.5) == pytest.approx(10 / 2**0.5)


def test_components_that_others_use_fail_while_the_pool_is_off() -> None:
    law = FailureTimes(1, 1)
    kinds = ("replica", "gpu", "server", "nic", "psu", "rack", "site")
    found = domains_of(dict.fromkeys(kinds, law), ServerLayout(1, 1), 1)
    assert {one.name for one in found if not one.needs_power} == {"rack 0", "site 0"}


def test_the_mean_interval_of_interruptions() -> None:
    assert SpotInterruptions(interruptions_per_h=4, recovery_h=1, notice_s=9).interval_s == 900
    assert SpotInterruptions(trace={0: 1}, notice_s=9).interval_s == float("inf")
