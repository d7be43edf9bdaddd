from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.catalogue.engine import OwnAllReduce
from sim.steptime.collective import AllReduce, CollectiveCurve, Send

LINKS = ["nvlink4-nvswitch", "pcie4-x16", "pcie4-x16-no-p2p", "pcie3-x16", "infinity-fabric-mi300x", "thunderbolt-4"]
SIZES = st.floats(1, 1e10)


@pytest.fixture(scope="module")
def allreduces(link):
    return [AllReduce.over(link(name), ranks, 1.5) for name in LINKS for ranks in (2, 3, 4, 8, 16)]


@pytest.mark.slow
@given(sizes=st.lists(SIZES, min_size=2, max_size=10))
def test_larger_messages_are_never_faster(allreduces, sizes):
    sizes.sort()
    for allreduce in allreduces:
        times = [allreduce.time_s(size) for size in sizes]
        assert times[0] > 0
        assert all(small <= large * (1 + 1e-9) for small, large in pairwise(times))


def test_curve_interpolates_its_points_and_extrapolates_in_proportion():
    curve = CollectiveCurve.of((1e3, 1e6), (1e-5, 1e-3))
    assert curve.time_s(1e3) == pytest.approx(1e-5)
    assert curve.time_s(1e6) == pytest.approx(1e-3)
    assert curve.time_s(1) == pytest.approx(1e-5)
    assert curve.time_s(1e7) == pytest.approx(1e-2)
    assert curve.time_s(10**4.5) == pytest.approx(1e-4)


def test_noise_in_a_curve_is_levelled():
    curve = CollectiveCurve.of((1e3, 2e3, 4e3), (2e-5, 1e-5, 3e-5))
    assert curve.time_s(2e3) == pytest.approx(2e-5)


def test_without_a_table_it_is_latency_plus_ring_traffic(link):
    tableless = link("pcie3-x16")
    assert not tableless.allreduce_tables
    expected = tableless.allreduce_latency_s[4].value + 1.5 * 1e6 / tableless.allreduce_bus_bytes_per_s[4].value
    assert AllReduce.over(tableless, 4, 1.0).time_s(1e6) == pytest.approx(expected)


def test_without_peer_to_peer_a_crowded_host_slows_bytes_and_not_calls(link):
    staged, direct = link("pcie3-x16-no-p2p"), link("pcie3-x16")
    assert AllReduce.over(staged, 4, 2.0).time_s(0) == staged.allreduce_latency_s[4].value
    assert AllReduce.over(direct, 4, 2.0).time_s(0) == 2 * direct.allreduce_latency_s[4].value
    assert AllReduce.over(staged, 4, 2.0).time_s(1e9) == pytest.approx(2 * 1.5 * 1e9 / 3.05e9, rel=1e-3)


def test_four_cards_through_host_memory_take_what_was_measured(link):
    """nccl-tests issue 287: four RTX 5090, 64 KiB in 32.58 us and 128 MiB in 7384 us, where 12.8 us are the least
    between cards that reach each other."""
    staged = AllReduce.over(link("pcie5-x16-no-p2p"), 4, 1.0)
    assert staged.time_s(65536) == pytest.approx(32.58e-6)
    assert staged.time_s(2**27) == pytest.approx(7384e-6, rel=1e-3)


def test_a_gather_and_a_scatter_take_what_was_measured(link):
    """Two RTX PRO 6000 Server, 1 MiB of both together: 31 us each with NCCL; of PCIe 3 there is no table, of PCIe 4
    none of more than two cards: it is as if they did an all-reduce in two calls."""
    assert AllReduce.exchange(link("pcie5-x16"), 2, 1.0).time_s(2**20) == pytest.approx(62e-6, rel=0.02)
    for plain, ranks, share in ((link("pcie3-x16"), 2, 1.0), (link("pcie4-x16"), 8, 1.75)):
        sent_s = share * 4e6 / plain.allreduce_bus_bytes_per_s[ranks].value
        expected = 2 * plain.allreduce_latency_s[ranks].value + sent_s
        assert AllReduce.exchange(plain, ranks, 1.0).time_s(4e6) == pytest.approx(expected)


def test_an_engine_with_kernels_for_small_messages_leaves_the_others_to_nccl(link):
    """Eight H100: 128 KiB in 6.4 us with an engine's own kernels and 19 us with NCCL, 4 MiB in 56 us with NCCL."""
    nvlink = link("nvlink4-nvswitch")
    small = AllReduce.over(nvlink, 8, 1.0, own_bytes=5e5)
    assert small.time_s(2**17) == pytest.approx(6.4e-6, rel=0.01)
    assert small.time_s(2**22) > 1.5 * AllReduce.over(nvlink, 8, 1.0, own_bytes=2**23).time_s(2**22)
    assert AllReduce.over(nvlink, 8, 1.0, own_bytes=0.0).time_s(2**17) > 17e-6


def test_more_than_two_cards_without_nvlink_are_left_to_nccl():
    own = OwnAllReduce(max_bytes={2: 8e6, 8: 8e6}, pcie_pairs=True, source="test", kind="quoted")
    assert [own.largest(ranks, over_pcie=True) for ranks in (2, 8)] == [8e6, 0]
    assert [own.largest(ranks, over_pcie=False) for ranks in (2, 3, 8)] == [8e6, 0, 8e6]
    assert own.model_copy(update={"pcie_pairs": False}).largest(2, over_pcie=True) == 0


def test_one_rank_has_no_communication(link):
    assert AllReduce.over(link("pcie4-x16"), 1, 1.9).time_s(1e6) == 0


def test_unmeasured_number_of_gpus_uses_the_next_larger(link):
    pcie = link("pcie4-x16")
    assert AllReduce.over(pcie, 3, 1.0).time_s(1e6) == AllReduce.over(pcie, 4, 1.0).time_s(1e6)


def test_send_time_is_latency_plus_bytes_over_rate(link):
    nvlink = link("nvlink3-nvswitch")
    send = Send.over(nvlink)
    assert send.time_s(0) == nvlink.allreduce_latency_s[2].value
    assert send.time_s(2.3e11) == pytest.approx(1, rel=1e-3)
