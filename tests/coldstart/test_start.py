"""Starts as physics, against starts that people have measured, and their figures."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sim.catalogue.catalog import load_catalog
from sim.catalogue.value import Value
from sim.coldstart import ColdStart, StartingReplica, StartUnknown, load_figures, start_of

CATALOG = load_catalog()
FIGURES = load_figures(CATALOG.root / "coldstart.yaml")
GIB = 2**30


def start(spec: dict[str, Any], **replica: Any):
    facts: dict[str, Any] = {"engine": "vllm-0.14", "layers": 32, "gpus": 1, "weights_bytes": 16.06e9}
    return start_of(ColdStart(**spec), StartingReplica(**facts | replica), FIGURES)


def total_s(spec: dict[str, Any], **replica: Any) -> float:
    return sum(stage.alone_s for stage in start(spec, **replica).stages)


def test_every_figure_has_a_source_and_an_order() -> None:
    found = 0
    for holder in (*FIGURES.weights.values(), FIGURES.image, *FIGURES.engines.values()):
        for name in type(holder).model_fields:
            if isinstance(value := getattr(holder, name), Value):
                assert CATALOG.source(value.source).title
                assert value.range is not None
                found += 1
    assert found > 15
    for era in FIGURES.engines.values():
        assert all(CATALOG.engine(engine) for engine in era.engines)
        assert era.cached_init_s.value <= era.init_s.value
    assert FIGURES.of_engine("sglang-0.5") is None


@pytest.mark.parametrize(
    ("measured_s", "spec", "replica", "within"),
    [
        (82, {"weights_from": "network_store", "weights_gb_per_s": 16.06 / 18, "cached": True}, {}, 0.1),
        (294, {"weights_from": "network_store"}, {}, 0.45),
        (215, {"weights_from": "page_cache"}, {"layers": 80, "weights_bytes": 70.6e9, "gpus": 8}, 0.15),
        (59, {"weights_from": "page_cache", "cached": True}, {"layers": 28, "weights_bytes": 3.42 * GIB}, 0.1),
        (277, {}, {"layers": 40, "weights_bytes": 21.8 * GIB}, 0.4),
    ],
    ids=["8B L40S cached", "8B L40S", "70B FP8 on 8", "3B cached", "35B-A3B NVFP4"],
)
def test_whole_starts_that_were_measured(
    measured_s: float, spec: dict[str, Any], replica: dict[str, Any], within: float
) -> None:
    assert abs(total_s(spec, **replica) / measured_s - 1) < within


def test_a_start_worked_by_hand() -> None:
    spec = {"provisioning_s": 40, "image_gb": 8, "weights_from": "block_volume", "cached": True, "weights_gb": 33.5}
    told = start(spec)
    # 8 GB at 0.1 GB/s, 33.5 GB at 0.335 GB/s, 0.22 s and 0.61 s for each of 32 layers
    assert [(stage.what, stage.doing, round(stage.alone_s, 2)) for stage in told.stages] == [
        ("machine", "provisioning", 40),
        ("container image", "booting", 80),
        ("engine", "booting", 34),
        ("weights", "loading", 100),
        ("compilation", "booting", 7.04),
        ("CUDA graphs", "booting", 19.52),
    ]
    assert set(told.values) == {
        "image.pull_bytes_per_s", "engine.cached_init_s", "engine.cached_compile_s_per_layer",
        "engine.capture_s_per_layer", "weights.block_volume.source_bytes_per_s",
    }  # fmt: skip
    assert total_s({"total_s": 60}) == 60
    assert start({"total_s": 60}).values == {}
    assert total_s({"engine_s": 5, "weights_gb_per_s": 16.06}) == 6
    # eight processes read eight times as fast as one, as far as the drive allows
    fast, slow = (total_s({"engine_s": 1}, weights_bytes=65e9, gpus=gpus) - 1 for gpus in (8, 1))
    assert (slow, fast) == (pytest.approx(50), pytest.approx(65 / 7))
    peer = {"weights_from": "peer_gpu", "link": "infiniband-hdr", "engine_s": 1}
    assert total_s(peer, weights_bytes=35e9, peer_link=CATALOG.link("infiniband-hdr")) == pytest.approx(1 + 35 / 17.5)


def test_who_sleeps_keeps_engine_and_graphs() -> None:
    link = CATALOG.link("pcie4-x16")
    first = start({"sleep_level": 1, "total_s": 300}, host_link=link, gpus=2)
    second = start({"sleep_level": 2, "weights_from": "page_cache"})
    assert [stage.doing for stage in (*first.wake, *second.wake)] == ["loading", "loading"]
    rate = (link.measured_bytes_per_s or link.theoretical_bytes_per_s).value
    assert first.wake[0].alone_s == pytest.approx(0.4 + 16.06e9 / 2 / rate)
    assert second.wake[0].alone_s == pytest.approx(0.4 + 16.06 / 4.1)
    assert start({"total_s": 1}).wake == ()


def test_waking_moves_the_stated_weights_over_the_slower_path() -> None:
    link = CATALOG.link("pcie4-x16")
    rate = (link.measured_bytes_per_s or link.theoretical_bytes_per_s).value
    two = start({"sleep_level": 1, "weights_gb": 40}, host_link=link, gpus=2)
    assert two.wake[0].alone_s == pytest.approx(0.4 + 40e9 / (2 * rate))
    narrow = start({"sleep_level": 1, "weights_gb": 40}, host_link=link, gpus=2, lanes_bytes_per_s=1e9)
    assert narrow.wake[0].alone_s == pytest.approx(0.4 + 40)
    nothing = start({"sleep_level": 1, "total_s": 3}, host_link=link, weights_bytes=0.0)
    assert nothing.wake[0].alone_s == pytest.approx(0.4)


def test_a_peer_sends_at_the_measured_rate_of_the_link_or_a_stated_one() -> None:
    link = CATALOG.link("pcie4-x16")
    assert link.measured_bytes_per_s is not None
    assert link.measured_bytes_per_s.value < link.theoretical_bytes_per_s.value
    peer = {"weights_from": "peer_gpu", "link": "pcie4-x16", "engine_s": 1}
    measured = 1 + 35e9 / link.measured_bytes_per_s.value
    assert total_s(peer, weights_bytes=35e9, peer_link=link) == pytest.approx(measured)
    unmeasured = link.model_copy(update={"measured_bytes_per_s": None})
    theory = 1 + 35e9 / link.theoretical_bytes_per_s.value
    assert total_s(peer, weights_bytes=35e9, peer_link=unmeasured) == pytest.approx(theory)
    assert total_s(peer | {"weights_gb_per_s": 7}, weights_bytes=35e9, peer_link=link) == pytest.approx(6)


def test_lanes_limit_what_a_fast_source_sends() -> None:
    spec = {"engine_s": 1, "weights_gb_per_s": 100}
    assert total_s(spec, weights_bytes=50e9, lanes_bytes_per_s=5e9) == pytest.approx(11)
    assert total_s(spec, weights_bytes=50e9, lanes_bytes_per_s=500e9) == pytest.approx(1.5)


def test_unknown_start_times_are_refused() -> None:
    with pytest.raises(StartUnknown, match="unheard-of has no known way to sleep"):
        start({"sleep_level": 1, "total_s": 1}, engine="unheard-of")
    with pytest.raises(StartUnknown, match="give sleep_level: 2"):
        start({"sleep_level": 1, "total_s": 1})
    with pytest.raises(ValidationError, match="go together"):
        ColdStart(weights_from="peer_gpu")
    with pytest.raises(StartUnknown, match=r"sglang-0\.5 was never measured: give engine_s or total_s"):
        start({}, engine="sglang-0.5")
    with pytest.raises(StartUnknown, match="give weights_gb or total_s"):
        start({}, weights_bytes=0.0)
    with pytest.raises(StartUnknown, match="no known way to sleep"):
        start({"sleep_level": 1}, engine="vllm-0.6")
    with pytest.raises(ValidationError, match="total_s is the whole start: remove cached, image_gb"):
        ColdStart(total_s=1, image_gb=3, cached=True)
    with pytest.raises(ValidationError, match="go together"):
        ColdStart(link="infiniband-hdr")
    assert Path(CATALOG.root / "coldstart.yaml").is_file()
