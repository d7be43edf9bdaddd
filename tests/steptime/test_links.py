"""Lanes that GPUs of a server share, and exchanges between servers, worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.catalogue.engine import OwnAllReduce
from sim.catalogue.server import PcieSlots, Server
from sim.catalogue.value import Value
from sim.records import Batch
from sim.steptime.calibration import Calibration, Factor, LinkFactors
from sim.steptime.collective import AllReduce, ReplicaNetwork
from sim.steptime.pcie_lanes import PcieLanes
from sim.steptime.roofline import RooflineStepTime

X16 = 16e9
"""Rate of sixteen lanes of every generation here."""


def value(number):
    return Value(value=number, source="test", kind="computed")


def slots(count, lanes=16, cpu=0, uplink=None):
    return PcieSlots(
        cpu=cpu, generation=3, lanes=lanes, slots=count, uplink_lanes=uplink, source="test", kind="computed"
    )


def lanes(*pcie, socket=None):
    server = Server(
        id="s", name="s", gpu_slots=value(8), link="pcie3-x16", pcie=pcie, psu_efficiency=value(1.0),
        socket_bytes_per_s=socket and value(socket),
    )  # fmt: skip
    return PcieLanes.of(server, lambda generation: X16)


def ring(*gpus):
    return frozenset(gpus)


SWITCHES = slots(4, uplink=16), slots(4, cpu=1, uplink=16)


@pytest.mark.parametrize(
    ("server", "rings", "staged", "expected"),
    [
        (lanes(slots(4)), [ring(0, 1, 2, 3)], False, X16),  # everyone sends over lanes of its own
        (lanes(slots(2), slots(2, lanes=4)), [ring(0, 1, 2, 3)], False, X16 / 4),  # the narrowest slot
        (lanes(*SWITCHES), [ring(*range(8))], False, X16),  # a ring leaves a switch once
        (lanes(*SWITCHES), [ring(*range(4)), ring(*range(4, 8))], False, X16),  # or never
        (lanes(*SWITCHES), [ring(*range(8))], True, X16 / 4),  # through host memory: four GPUs on one uplink
        (lanes(*SWITCHES, socket=6e9), [ring(*range(8))], False, 6e9),  # once each way between the CPUs
        (lanes(*SWITCHES, socket=6e9), [ring(0, 1), ring(2, 3)], False, X16),  # nothing crosses
        (lanes(slots(2, uplink=16), slots(2, uplink=16)), [ring(0, 2), ring(1, 3)], False, X16 / 2),  # two on an uplink
    ],
)
def test_a_ring_gets_the_narrowest_share(server, rings, staged, expected):
    assert server.ring_bytes_per_s(rings, staged) == expected


def test_gpus_behind_a_switch_load_over_its_uplink():
    assert lanes(*SWITCHES).host_bytes_per_s(ring(0, 1, 2, 4)) == X16 / 3
    assert lanes(slots(4), socket=1e9).host_bytes_per_s(ring(0, 1, 2, 3)) == X16


GROUPS = st.builds(
    slots, st.integers(1, 5), st.sampled_from([4, 8, 16]), st.integers(0, 1), st.sampled_from([None, 8, 16])
)


@pytest.mark.slow
@given(
    groups=st.lists(GROUPS, min_size=1, max_size=4), size=st.integers(1, 6), staged=st.booleans(), order=st.randoms()
)
def test_no_lane_carries_more_than_its_rate(groups, size, staged, order):
    server = lanes(*groups, socket=5e9)
    gpus = list(range(sum(group.slots for group in groups)))
    order.shuffle(gpus)
    rings = [ring(*gpus[i : i + size]) for i in range(0, len(gpus), size)]
    each = server.ring_bytes_per_s(rings, staged)
    for edge in server.edges:
        carried = sum(edge.flows(one, staged) for one in rings) * each if each < float("inf") else 0.0
        assert carried <= edge.bytes_per_s * (1 + 1e-12)
    assert all(
        len(edge.below) * server.host_bytes_per_s(ring(*gpus)) <= edge.bytes_per_s * (1 + 1e-12)
        for edge in server.edges
        if edge.to_host
    )


@pytest.mark.parametrize("name", ["pcie4-x16", "pcie3-x16"])
@pytest.mark.parametrize("message", [1e3, 1e6, 1e9])
def test_half_of_the_lanes_take_as_long_as_twice_the_bytes(link, name, message):
    whole, half = (AllReduce.over(link(name), 4, 1.0, stretch) for stretch in (1.0, 2.0))
    assert half.time_s(message) == whole.time_s(2 * message)
    bus_bytes_per_s = 1.5 * message / half.time_s(message)
    assert bus_bytes_per_s <= link(name).theoretical_bytes_per_s.value / 2


def network(link, gpus=4, adapters=2, **changes):
    return ReplicaNetwork(link("ethernet-25g"), gpus, adapters, **changes)


def test_an_all_reduce_between_servers_by_hand(link):
    """Two servers of four GPUs and two adapters of 1.25 GB/s: each adapter sends half of the message."""
    inside = AllReduce.over(link("pcie4-x16"), 4, 1.0)
    across = network(link).all_reduce(inside, 8)
    assert across.time_s(1e6) == pytest.approx(inside.time_s(1e6) + 50e-6 + 0.5e6 / 1.25e9)
    slower = network(link, oversubscription=3).all_reduce(inside, 8)
    assert slower.time_s(1e6) == pytest.approx(inside.time_s(1e6) + 50e-6 + 3 * 0.5e6 / 1.25e9)
    four_servers = network(link).all_reduce(inside, 16)
    assert four_servers.time_s(1e6) == pytest.approx(inside.time_s(1e6) + 100e-6 + 1.5 * 0.5e6 / 1.25e9)
    assert network(link).all_reduce(inside, 4) is inside


def test_sixteen_gpus_of_two_servers_take_what_was_measured(link):
    """Two DGX A100 over InfiniBand, 2 KiB: 65 us with NCCL, which also sums inside of each."""
    inside = AllReduce.over(link("nvlink3-nvswitch"), 8, 1.0, own_bytes=0)
    across = ReplicaNetwork(link("infiniband-hdr"), 8, 8).all_reduce(inside, 16)
    assert across.time_s(2048) == pytest.approx(65e-6, rel=0.03)


def test_a_stage_sends_over_its_part_of_the_adapters(link):
    """Two of four GPUs have one of the two adapters of 2.942 GB/s."""
    assert network(link).send_s(1e6, 2) == pytest.approx(50e-6 + 2e6 / 2.942e9)
    assert network(link).send_s(1e6, 8) == pytest.approx(50e-6 + 4e6 / (2 * 2.942e9))


@pytest.mark.parametrize("generation", [3, 4, 5])
@pytest.mark.parametrize("card", ["a100-80gb-pcie", "l40s", "rtx-pro-6000", "rtx-4090", "rtx-5090"])
def test_a_way_through_host_memory_is_never_faster(link, gpu, coefficients, card, generation):
    """Checked from a token's bytes of a small model on; 25 % as the curves of PCIe 5 were measured on two hosts."""
    direct, staged = link(f"pcie{generation}-x16"), link(f"pcie{generation}-x16-no-p2p")
    for ranks in (2, 4, 8):
        short, long = (
            AllReduce.over(one, ranks, coefficients.allreduce_factor(gpu(card), one).value) for one in (direct, staged)
        )
        assert all(long.time_s(2**power) > 0.75 * short.time_s(2**power) for power in range(12, 29))


@pytest.mark.parametrize(
    "rising", [("pcie3-x8", "pcie3-x16"), ("pcie4-x4", "pcie4-x8", "pcie4-x16"), ("pcie5-x8", "pcie5-x16", "pcie6-x16")]
)
def test_more_lanes_or_a_higher_rate_are_never_slower(link, rising):
    for ranks in (2, 4, 8):
        curves = [AllReduce.over(link(name), ranks, 1.0) for name in rising]
        for power in range(13, 30):
            times = [curve.time_s(2**power) for curve in curves]
            assert times == sorted(times, reverse=True)


@pytest.mark.slow
def test_networks_of_one_rate_take_the_same_time_and_faster_ones_less(link):
    names = ("roce-100g", "roce-200g", "infiniband-hdr", "roce-400g", "infiniband-xdr")
    for ranks in (2, 4, 8, 16):
        curves = [AllReduce.over(link(name), ranks, 1.0) for name in names]
        for message in (2048, 65536, 2**20, 2**26, 2**30):
            hundred, roce, hdr, faster, fastest = (curve.time_s(message) for curve in curves)
            assert roce == pytest.approx(hdr, rel=1e-3)
            assert hundred >= roce >= faster >= fastest


def test_a_replica_on_two_servers_is_slower_than_on_one(build, link):
    one = build(model="llama3.1-70b", card="h100-80gb-sxm", over="nvlink4-nvswitch", tp=8)
    inputs = replace(one.inputs, network=ReplicaNetwork(link("infiniband-hdr"), 4, 4))
    two = RooflineStepTime(one.spec, inputs)
    message = 64 * one.inputs.model.hidden * 2
    longer = two._link_s(64) - one._link_s(64)
    factor = inputs.coefficients.allreduce_factor(inputs.gpu, inputs.link).value
    four, eight = (AllReduce.over(link("nvlink4-nvswitch"), ranks, factor, own_bytes=0) for ranks in (4, 8))
    pair = AllReduce.over(link("infiniband-hdr"), 2, 1.0)
    each = four.time_s(message) + pair.time_s(message / 4) - eight.time_s(message)
    assert longer == pytest.approx(2 * one.inputs.model.layers * each)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"tp": 2}, {"all-reduce"}),
        ({"tp": 2, "pp": 2}, {"all-reduce", "stage"}),
        ({"model": "qwen3-30b-a3b", "dp": 2, "ep": True}, {"experts"}),
        ({"model": "minimax-m2.5", "tp": 2, "pp": 2}, {"all-reduce", "stage"}),
        ({}, set()),
    ],
)
def test_messages_add_up_to_the_time_between_gpus_and_the_engine_does_the_small_ones(build, settings, what):
    one = build(card="rtx-pro-6000", over="pcie5-x16", **settings)
    own = OwnAllReduce(max_bytes={2: 1e6}, pcie_pairs=True, source="test", kind="quoted")
    one = RooflineStepTime(
        one.spec, replace(one.inputs, engine=one.inputs.engine.model_copy(update={"own_all_reduce": own}))
    )
    messages = [message for message in one.exchanges(64) if message.calls * message.each_s]
    assert {message.what for message in messages} == what
    together_s = sum(message.calls * message.each_s for message in messages)
    assert together_s == pytest.approx(one.breakdown(Batch(decode_seqs=64, sampled_seqs=64))["link"])
    assert {message.over for message in messages} <= {("PCIe 5.0 x16, peer-to-peer",)}
    by_size = [one.exchanges(tokens)[0] for tokens in (64, 4096)]
    assert [message.own for message in by_size] == ([True, False] if "all-reduce" in what else [False, False])


def test_ranks_add_up_the_squares_of_norms_over_all_heads_in_each_layer(build):
    over_heads = build("minimax-m2.5", over="nvlink4-nvswitch", tp=4)
    norms = over_heads.exchanges(16)[-1]
    assert (norms.what, norms.calls, norms.message_bytes) == ("all-reduce", 62, 16 * 8)
    assert build("qwen3-30b-a3b", over="nvlink4-nvswitch", tp=4).exchanges(16)[-1].calls == 0


@pytest.mark.parametrize("id", ["pcie5-x16", "pcie4-x16-no-p2p", "nvlink4-nvswitch"])
def test_a_calibrated_link_stretches_whatever_ranks_exchange(link, id):
    factors = LinkFactors(latency=Factor(factor=2.0), time_per_byte=Factor(factor=2.0))
    for usual in (link(id), link(id).across_sockets()):
        own = Calibration(gpu="any", links={id: factors}).link(usual)
        ways = [(AllReduce.over(usual, ranks, 1.0), AllReduce.over(own, ranks, 1.0)) for ranks in (2, 4, 8)] + [
            (AllReduce.over(usual, 4, 1.0, own_bytes=0.0), AllReduce.over(own, 4, 1.0, own_bytes=0.0)),
            (AllReduce.exchange(usual, 2, 1.0), AllReduce.exchange(own, 2, 1.0)),
        ]
        for message_bytes in (2e3, 3e6):
            for before, after in ways:
                assert after.time_s(message_bytes) == pytest.approx(2 * before.time_s(message_bytes))


def test_ranks_gather_hidden_states_in_the_bits_of_the_format_and_scatter_sums_in_16(build):
    def exchanged(bits=None, **layout):
        one = build("deepseek-v3", card="h200-141gb-sxm", over="nvlink4-nvswitch", **layout)
        value = one.inputs.engine.overheads.moe_layer_factor.model_copy(update={"value": bits})
        overheads = one.inputs.engine.overheads.model_copy(update={"gathered_bits": {"k": value} if bits else {}})
        engine = one.inputs.engine.model_copy(update={"overheads": overheads})
        return RooflineStepTime(one.spec, replace(one.inputs, engine=engine)).exchanges(16)[1].message_bytes

    assert exchanged(dp=8, ep=True) == exchanged(16, dp=8, ep=True) == 8 * 16 * 7168 * 2
    assert exchanged(4.5, dp=8, ep=True) == 8 * 16 * 7168 * (4.5 + 16) / 16
    assert exchanged(4.5, tp=8, ep=True) == exchanged(tp=8, ep=True)
