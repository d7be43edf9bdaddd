"""Tests of the engines' default limits by release and GPU."""

from math import inf

import pytest

from sim.batching import PrefillFirst, Vllm
from sim.batching.limits import Speculative
from sim.catalogue.catalog import load_catalog
from sim.catalogue.engine import at_version, default_limit, version_of
from sim.scenario.resolving.scheduler import (
    graph_size_multiple,
    graph_tokens,
    overlaps_batches,
    overlaps_chunks,
    padded_tokens,
    with_defaults,
)

SMALL, LARGE, LARGEST = (256, 2048), (1024, 8192), (1024, 16384)


@pytest.mark.parametrize(
    ("gpu", "release", "limits"),
    [
        ("l4", "0.33", SMALL),
        ("a100-80gb-sxm", "0.25", SMALL),
        ("a800-80gb-sxm", "0.10", LARGE),
        ("h200-141gb-sxm", "0.33", LARGE),
        ("b200-180gb-sxm", "0.27", LARGE),
        ("b200-180gb-sxm", "0.28", LARGEST),
        ("mi300x", "0.33", LARGEST),
        ("dgx-spark-128gb", "0.32", LARGE),
        ("dgx-spark-128gb", "0.33", SMALL),
    ],
)
def test_vllm_limits_are_those_of_get_batch_defaults(gpu: str, release: str, limits: tuple[int, int]) -> None:
    catalog, version = load_catalog(), version_of(release)
    engine = at_version(catalog.engine("vllm-0.10" if release == "0.10" else "vllm-0.14"), version)
    names = "max_num_seqs", "max_num_batched_tokens"
    found = [default_limit(engine, catalog.gpu(gpu), name) for name in names]
    assert tuple(int(one.value) for one in found if one is not None) == limits


@pytest.mark.parametrize(("gpu", "tokens"), [("l4", 8192), ("a100-80gb-sxm", 8192), ("h100-80gb-sxm", 16384)])
def test_an_engine_called_as_a_library_has_the_limits_of_an_llm_object(gpu: str, tokens: int) -> None:
    catalog = load_catalog()
    engine, card = catalog.engine("vllm-0.14"), catalog.gpu(gpu)
    empty = Vllm(policy="vllm")
    served, offline = (with_defaults(empty, engine, card, None, None, called) for called in (False, True))
    assert (offline.max_num_batched_tokens, offline.max_num_seqs) == (tokens, served.max_num_seqs)
    assert served.max_num_batched_tokens == tokens // (2 if tokens == 16384 else 4)


@pytest.mark.parametrize(
    ("gpu", "release", "tokens"),
    [("b200-180gb-sxm", "0.27", 512), ("b200-180gb-sxm", "0.28", 1024), ("gb300-278gb", "0.33", 1024)]
    + [(gpu, "0.33", 512) for gpu in ("h200-141gb-sxm", "mi300x", "rtx-pro-6000")],
)
def test_vllm_captures_larger_graphs_on_data_centre_blackwell(gpu: str, release: str, tokens: int) -> None:
    catalog = load_catalog()
    engine = at_version(catalog.engine("vllm-0.14"), version_of(release))
    batching, card = Vllm(policy="vllm", max_num_seqs=1024), catalog.gpu(gpu)
    assert graph_tokens(batching, engine, card, catalog.model("llama3.1-8b"), False, None) == (tokens, tokens)


@pytest.mark.parametrize(
    ("model", "seqs", "stated", "tokens"),
    [
        ("llama3.1-8b", 64, None, (128, 128)),
        ("gpt-oss-20b", 64, None, (1024, 1024)),
        ("llama3.1-8b", 1024, 2048, (2048, 2048)),
        ("llama3.1-8b", 1024, 64, (64, 64)),
        ("llama3.1-8b", 1024, 0, (0, 512)),
    ],
)
def test_vllm_captures_graphs_of_twice_its_sequences_or_as_it_is_told(
    model: str, seqs: int, stated: int | None, tokens: tuple[float, float]
) -> None:
    catalog = load_catalog()
    one, card = catalog.model(model), catalog.gpu("h100-80gb-sxm")
    batching = Vllm(policy="vllm", max_num_seqs=seqs)
    assert graph_tokens(batching, catalog.engine("vllm-0.14"), card, one, True, stated) == tokens


@pytest.mark.parametrize(
    ("engine", "card", "multiple"),
    [("vllm-0.14", "rtx-pro-6000", 8), ("vllm-0.10", "mi300x", 8), ("vllm-0.14", "gaudi3", 1), ("sglang-0.5", "l4", 1)],
)
def test_vllm_captures_graphs_of_multiples_of_8_tokens(engine: str, card: str, multiple: int) -> None:
    catalog = load_catalog()
    assert graph_size_multiple(catalog.engine(engine), catalog.gpu(card)) == multiple


@pytest.mark.parametrize(("engine", "tokens"), [("vllm-0.11", 128), ("vllm-0.14", 512)])
def test_drafts_are_in_the_largest_graph_from_vllm_0_14_on(engine: str, tokens: float) -> None:
    catalog = load_catalog()
    one, card = catalog.model("llama3.1-8b"), catalog.gpu("h100-80gb-sxm")
    drafts = Speculative(num_speculative_tokens=3, accepted=2, method="ngram")
    batching = Vllm(policy="vllm", max_num_seqs=64, speculative=drafts)
    assert graph_tokens(batching, catalog.engine(engine), card, one, True, None) == (tokens, tokens)


@pytest.mark.parametrize(
    ("engine", "release", "padded"),
    [("vllm-0.10", "0.10", (inf, inf)), ("vllm-0.14", "0.16", (inf, inf)), ("vllm-0.14", "0.19", (0, 512))],
)
def test_ranks_are_padded_in_steps_from_graphs_from_vllm_0_17_on(
    engine: str, release: str, padded: tuple[float, float]
) -> None:
    assert padded_tokens(at_version(load_catalog().engine(engine), version_of(release)), (0, 512)) == padded


def test_sglang_captures_graphs_of_prompts_on_one_rank_of_nvidia_alone() -> None:
    catalog = load_catalog()
    engine = at_version(catalog.engine("sglang-0.5"), version_of("0.5.12"))

    def of(card: str, one_rank: bool, stated: int | None = None) -> tuple[float, float]:
        model = catalog.model("llama3.1-8b")
        return graph_tokens(PrefillFirst(policy="prefill_first"), engine, catalog.gpu(card), model, one_rank, stated)

    assert of("h100-80gb-sxm", True) == (8192, inf)
    assert of("h100-80gb-sxm", True, 0) == (0, inf)
    assert of("h100-80gb-sxm", False) == of("mi300x", True) == (0, inf)


def test_tensorrt_llm_overlaps_chunks_of_a_prompt_from_1_2_on() -> None:
    engine = load_catalog().engine("tensorrt-llm")
    assert [overlaps_chunks(at_version(engine, version_of(release))) for release in ("1.1", "1.2")] == [False, True]


def test_tensorrt_llm_overlaps_batches_in_stages_from_0_11_on() -> None:
    releases = [load_catalog().engine(f"tensorrt-llm-{release}") for release in ("0.5", "0.9", "0.10", "0.11", "0.14")]
    assert [overlaps_batches(one) for one in releases] == [False, False, False, True, True]


def test_no_alias_of_an_engine_hides_the_defaults_of_a_release() -> None:
    catalog = load_catalog()
    engines = map(catalog.engine, catalog.ids("engines"))
    assert not [alias for one in engines for alias in one.aliases if version_of(alias)]


def test_vllm_overlaps_batches_in_stages_but_from_0_16_to_0_21_with_asynchronous_scheduling() -> None:
    engine = load_catalog().engine("vllm-0.14")
    default, off = Vllm(policy="vllm"), Vllm(policy="vllm", async_scheduling=False)
    releases = [at_version(engine, version_of(release)) for release in ("0.15", "0.16", "0.21", "0.22")]
    assert [overlaps_batches(release, default) for release in releases] == [True, False, False, True]
    assert not overlaps_batches(engine, default)  # without a release, the defaults are those of 0.19 and 0.20
    assert all(overlaps_batches(release, off) for release in (*releases, engine))
