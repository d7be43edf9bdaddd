"""Replicas of several servers, and servers whose lanes are known: what a scenario may say, and what follows."""

from pathlib import Path
from typing import Any

import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.layers import as_document
from sim.scenario.reading.load import load
from sim.scenario.resolving.bind import BoundPool, bind
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.describe import describe
from sim.scenario.resolving.hardware import (
    communicating_gpus,
    host_bytes_per_s,
    lanes_stretch,
    link_of,
    network_of,
    transfer_of,
)
from sim.scenario.sweep import cases
from sim.steptime.collective import AllReduce
from sim.yamlio import dump

LENGTHS = {"prompt": {"distribution": "fixed", "value": 64}, "output": {"distribution": "fixed", "value": 4}}
WIDE = {"gpu": "h100-80gb-sxm", "tensor_parallel_size": 16}
TRAY = {"gpu": "gb200-186gb", "server": "gb200-compute-tray"}
NETWORK = {"link": "infiniband-ndr"}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def scenario(**pool: Any) -> dict[str, Any]:
    workload = {"arrivals": {"process": "burst", "num_requests": 1}, "lengths": LENGTHS}
    return {"name": "s", "model": "llama3.1-70b", "workload": workload, "fleets": [{"name": "f", "pools": [pool]}]}


@pytest.mark.parametrize(
    ("pool", "complaint"),
    [
        (WIDE, "tensor_parallel_size: 16 GPUs of a replica exceed the 8 that nvlink4-nvswitch can connect"),
        (WIDE | {"server": "dgx-h100"}, "tensor_parallel_size: 16 ranks do not fit the 8 slots of dgx-h100: name the"),
        (WIDE | {"network": NETWORK}, "network: needs a server, which states how many GPUs share its adapters"),
        (WIDE | {"server": "dgx-h100", "network": {"link": "infiniband-nrd"}}, "network.link: unknown link"),
        (
            {"gpu": "rtx-4090", "server": "tinybox-green", "tensor_parallel_size": 8, "network": NETWORK},
            "tensor_parallel_size: 8 ranks cannot be spread evenly over servers of 6 GPUs",
        ),
        (TRAY | {"tensor_parallel_size": 8, "pipeline_parallel_size": 10}, "server: 80 GPUs of a replica do not fit"),
    ],
)  # fmt: skip
def test_replicas_without_a_connection_are_refused(
    tmp_path: Path, catalog: Catalog, pool: dict[str, Any], complaint: str
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(dump(scenario(**pool)))
    with pytest.raises(ScenarioErrors) as raised:
        load(file, catalog=catalog)
    assert f"fleets.0.pools.0.{complaint}" in str(raised.value)


@pytest.mark.parametrize(
    "pool",
    [
        WIDE | {"server": "dgx-h100", "network": NETWORK},
        WIDE | {"link": "infiniband-ndr"},
        TRAY | {"tensor_parallel_size": 8},
    ],
)
def test_connected_replicas_are_accepted(catalog: Catalog, pool: dict[str, Any]) -> None:
    assert communicating_gpus(bound(catalog, **pool)) > 4


def bound(catalog: Catalog, **pool: Any) -> BoundPool:
    experiment = load(as_document(scenario(**pool)), catalog=catalog)
    return bind(experiment, experiment.fleets[0], experiment.fleets[0].pools[0], catalog)


def test_the_adapters_are_those_of_the_server(catalog: Catalog) -> None:
    network = network_of(bound(catalog, **WIDE, server="dgx-h100", network=NETWORK), catalog)
    assert network is not None
    assert (network.adapters, network.gpus_per_server, network.servers(16), network.stretch) == (8, 8, 2, 1.0)
    few = WIDE | {"tensor_parallel_size": 8, "server": "dgx-h100", "network": NETWORK}
    assert network_of(bound(catalog, **few), catalog) is None


def test_five_cards_behind_a_switch(catalog: Catalog) -> None:
    full = bound(
        catalog, gpu="t4", server="supermicro-6049gp-trt", tensor_parallel_size=4, replicas=5, link="pcie3-x16"
    )
    assert host_bytes_per_s(full, catalog) == pytest.approx(15.754e9 / 5)
    assert lanes_stretch(full, catalog) == 2  # the second replica has a card behind one switch, three behind the next


def test_slots_of_a_known_server_are_all_of_its_slots(catalog: Catalog) -> None:
    known = [server for server in map(catalog.server, catalog.ids("servers")) if server.pcie]
    assert known
    assert all(sum(group.slots for group in server.pcie) == server.gpu_slots.value for server in known)


@pytest.mark.parametrize(
    ("server", "gpu", "link", "bytes_per_s"),
    [
        ("workstation-4x4090", "rtx-4090", "pcie4-x16-no-p2p", 2 * 12.9e9),  # two cards with lanes of their own
        ("workstation-4x4090", "rtx-4090", "ethernet-25g", 2.942e9),  # the server's only port, for four cards
        ("dgx-h100", "h100-80gb-sxm", "infiniband-ndr", 2 * 50e9),
        ("supermicro-6049gp-trt", "t4", "pcie3-x16", 2 * 15.754e9 / 5),  # five cards behind sixteen lanes
    ],
)
def test_the_ports_of_kv_transfers(catalog: Catalog, server: str, gpu: str, link: str, bytes_per_s: float) -> None:
    pools = [
        {"role": role, "gpu": gpu, "server": server, "tensor_parallel_size": 2, "replicas": 10}
        for role in ("prefill", "decode")
    ]
    data = scenario() | {
        "model": "llama3.1-8b",
        "fleets": [{"name": "f", "pools": pools, "kv_transfer": {"link": link}}],
    }
    experiment = load(as_document(data), catalog=catalog)
    (fleet,) = experiment.fleets
    plan = transfer_of(fleet, [bind(experiment, fleet, pool, catalog) for pool in fleet.pools], catalog)
    assert plan is not None
    assert [port.bytes_per_s for port in plan.pools] == pytest.approx([bytes_per_s] * 2)


@pytest.mark.parametrize(("ranks", "crosses"), [(4, False), (8, True)])
def test_cards_on_both_sockets_of_a_server_sum_across_them(catalog: Catalog, ranks: int, crosses: bool) -> None:
    link = catalog.link("pcie5-x16")
    here = link_of(bound(catalog, gpu="rtx-pro-6000", server="server-8xrtx-pro-6000", tensor_parallel_size=ranks))
    assert here == (link.across_sockets() if crosses else link)
    over = [AllReduce.over(one, ranks, 1.0, own_bytes=0) for one in (here, link) if one is not None]
    slower = over[0].time_s(1e4) / over[1].time_s(1e4)
    assert slower > 1.5 if crosses else slower == 1


@pytest.mark.slow
def test_sums_across_sockets_are_never_faster_than_within_one(catalog: Catalog) -> None:
    for link in map(catalog.link, catalog.ids("links")):
        for near, far in zip(link.allreduce_tables, link.across_sockets().allreduce_tables, strict=True):
            assert all(far.at(size) >= near.at(size) for size in (1, 2e3, 3e5, 7e5, 3e6, 1e9))
            if near.gpus not in {table.gpus for table in link.socket_tables}:
                assert far == near


@pytest.mark.slow
def test_a_plan_names_the_link_across_sockets_and_who_sums_what(catalog: Catalog) -> None:
    told = scenario(gpu="rtx-pro-6000", server="server-8xrtx-pro-6000", tensor_parallel_size=8)
    loaded = load(as_document(told), catalog=catalog)
    plan = describe(resolve(loaded, cases(loaded)[0], catalog), catalog)
    (pool,) = plan["pools"]
    assert pool["link"] == "PCIe 5.0 x16, peer-to-peer, across two CPUs"
    assert {(one["what"], one["own"]) for one in pool["exchanges"]} == {("all-reduce", False)}
    assert any("link.nccl_tables.8" in str(value) for value in plan["values"])


def test_equal_messages_of_a_step_are_one_row_and_name_the_network_that_they_cross(catalog: Catalog) -> None:
    told = scenario(**WIDE, model="deepseek-v3", server="dgx-h100", network=NETWORK)
    loaded = load(as_document(told), catalog=catalog)
    (pool,) = describe(resolve(loaded, cases(loaded)[0], catalog), catalog)["pools"]
    one = pool["exchanges"][0]
    assert one["calls"] == 2 * 61  # after attention and after the feed-forward block, dense or of experts
    assert [each["tokens"] for each in pool["exchanges"]] == sorted({each["tokens"] for each in pool["exchanges"]})
    assert one["over"] == [catalog.link("nvlink4-nvswitch").name, catalog.link(NETWORK["link"]).name]
