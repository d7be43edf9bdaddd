"""What five articles say about hardware, against what the makers say; and that everything they name is here."""

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.value import Value

CATALOG = load_catalog()


def value(found: Value | None) -> float:
    assert found is not None
    return found.value


def test_shader_rates_are_not_tensor_rates() -> None:
    card = CATALOG.gpu("rtx-4090")
    assert value(card.fp32_flops) == pytest.approx(82.58e12, rel=0.001)
    assert card.fp16_flops.value == pytest.approx(165.2e12)
    assert CATALOG.gpu("a100-80gb-sxm").fp16_flops.value == 312e12
    assert CATALOG.gpu("h100-80gb-sxm").fp16_flops.value > 3.5 * 248.3e12


def test_a100_nvlink_is_600_and_h100_nvlink_900_gigabytes_per_second_both_ways() -> None:
    assert value(CATALOG.gpu("a100-80gb-sxm").nvlink_total_bytes_per_s) == 600e9
    assert value(CATALOG.gpu("h100-80gb-sxm").nvlink_total_bytes_per_s) == 900e9
    assert 2 * CATALOG.link("nvlink4-nvswitch").theoretical_bytes_per_s.value == 900e9
    assert 2 * CATALOG.link("pcie4-x16").theoretical_bytes_per_s.value == pytest.approx(64e9, rel=0.02)


def test_ada_cards_have_no_nvlink_and_the_a6000_has() -> None:
    assert CATALOG.gpu("rtx-4090").nvlink_total_bytes_per_s is None
    assert CATALOG.gpu("rtx-6000-ada").nvlink_total_bytes_per_s is None
    assert value(CATALOG.gpu("rtx-a6000").nvlink_total_bytes_per_s) == 112.5e9


def test_the_workstation_table() -> None:
    ada, a6000, card = (CATALOG.gpu(name) for name in ("rtx-6000-ada", "rtx-a6000", "rtx-4090"))
    assert value(card.cuda_cores) == 16384
    assert value(card.fp16_sparse_flops) == pytest.approx(330e12, rel=0.01)
    assert (value(card.tdp_w), value(a6000.tdp_w), value(ada.tdp_w)) == (450, 300, 300)
    assert value(a6000.fp32_flops) == pytest.approx(38.7e12, rel=0.001)
    assert value(a6000.fp16_sparse_flops) == pytest.approx(312e12, rel=0.01)
    assert value(ada.fp8_sparse_flops) == 1457e12
    for name, usd in (("rtx-4090", 1599), ("rtx-a6000", 4650), ("rtx-6000-ada", 6800)):
        prices = CATALOG.prices(name)
        assert prices is not None
        assert usd in [offer.price.value for offer in prices.offers.values() if offer.currency == "USD"]


def test_the_inference_card_table() -> None:
    l40s, a10, a40, a6000, a100 = (CATALOG.gpu(name) for name in ("l40s", "a10", "a40", "rtx-a6000", "a100-80gb-sxm"))
    assert [card.memory_bytes_per_s.value for card in (l40s, a10, a40, a6000)] == [864e9, 600e9, 696e9, 768e9]
    assert a100.memory_bytes_per_s.value == 2039e9
    assert (value(l40s.tdp_w), value(a10.tdp_w), value(a40.tdp_w)) == (350, 150, 300)
    assert l40s.fp16_flops.value == pytest.approx(362e12, rel=0.001)
    assert value(l40s.fp16_sparse_flops) == 733e12
    assert value(l40s.fp8_sparse_flops) == 1466e12
    assert (a40.fp16_flops.value, a6000.fp16_flops.value) == (149.7e12, 154.8e12)
    assert [value(card.cuda_cores) for card in (l40s, a10, a40, a6000, a100)] == [18176, 9216, 10752, 10752, 6912]
    assert "Ampere" in a100.architecture


def test_the_training_card_table() -> None:
    h100 = CATALOG.gpu("h100-80gb-sxm")
    assert value(h100.cuda_cores) == 16896
    assert h100.fp16_flops.value == pytest.approx(989.5e12, rel=0.001)
    assert value(h100.fp16_sparse_flops) == 1979e12
    assert value(h100.fp8_sparse_flops) == 3958e12
    assert h100.memory_bytes_per_s.value == 3.35e12
    assert value(h100.tdp_w) == 700


def test_the_amd_card_and_blackwell() -> None:
    amd = CATALOG.gpu("mi300x")
    assert amd.memory_nominal_gib.value == 192
    assert amd.memory_bytes_per_s.value == 5.3e12
    assert CATALOG.gpu("b200").fp16_flops.value == 2.25e15
    assert CATALOG.gpu("gb200").fp16_flops.value == 2.5e15


@pytest.mark.parametrize("sparse", [733e12, 1466e12, 1979e12, 3958e12, 624e12, 1513e12, 3026e12])
def test_no_dense_fp16_rate_is_a_known_sparse_figure(sparse: float) -> None:
    for name in CATALOG.ids("gpus"):
        gpu = CATALOG.gpu(name)
        assert gpu.fp16_flops.value != sparse
        if sparse in (1466e12, 3958e12, 3026e12) and gpu.fp8_flops is not None:
            assert gpu.fp8_flops.value != sparse


NAMED_GPUS = [
    "rtx-3060-12gb",
    "rtx-3070",
    "rtx-3080-10gb",
    "rtx-3090",
    "rtx-4090",
    "rtx-a5000",
    "rtx-a6000",
    "rtx-6000-ada",
    "l40s",
    "a10",
    "a40",
    "a100-40gb-pcie",
    "a100-40gb-sxm",
    "a100-80gb-pcie",
    "a100-80gb-sxm",
    "a800-80gb-sxm",
    "a800-80gb-pcie",
    "h100-80gb-sxm",
    "h100-80gb-pcie",
    "h800-80gb-sxm",
    "v100-16gb-sxm2",
    "v100-32gb-sxm2",
    "b200-180gb-sxm",
    "gb200-186gb",
    "mi300x",
    "apple-m3-max-128gb",
    "apple-m2-ultra-192gb",
]
NAMED_SERVERS = [
    "dell-c4140",
    "inspur-nf5288m5",
    "gigabyte-t181-g20",
    "dgx-a100",
    "dgx-h100",
    "server-8xh100",
    "macbook-pro-16-m3-max",
    "mac-studio-m2-ultra",
    "workstation-1x4090",
    "workstation-2x4090",
    "workstation-4x4090",
    "workstation-2xa100-nvlink",
    "workstation-4xa6000",
]
NAMED_OFFERS = [
    "rtx-4090/new-2024-07",
    "a100-80gb-pcie/new-2024-07",
    "h100-80gb-sxm/new-2023-12",
    "server-8xh100/new-2023-12",
    "dgx-h100/new-2025-10",
    "workstation-4xa6000/new-2025-10",
    "macbook-pro-16-m3-max/new-2024-07",
    "mac-studio-m2-ultra/new-2024-07",
    "server-8x80gb-china/china-on-demand-2024-07",
    "colocation-rack/article-2023-12",
    "electricity-default/article-2023-12",
    "api-gpt-3.5-turbo/openai-input-2023-03",
    "gpu-cloud-discount/paperspace-2025",
]


@pytest.mark.parametrize("name", NAMED_GPUS)
def test_every_gpu_that_the_articles_name_is_here(name: str) -> None:
    assert CATALOG.gpu(name).id == name


@pytest.mark.parametrize("name", NAMED_SERVERS)
def test_every_server_that_the_articles_name_is_here(name: str) -> None:
    assert CATALOG.server(name).id == name


@pytest.mark.parametrize("name", NAMED_OFFERS)
def test_every_price_that_the_articles_name_is_here(name: str) -> None:
    assert CATALOG.offer(name).price.source.startswith("article_")


def test_the_pair_of_a100_is_priced_by_the_card() -> None:
    offer = CATALOG.offer("a100-80gb-pcie/new-2024-07")
    assert (offer.price.value, offer.currency) == (75000, "RMB")


@pytest.mark.parametrize("name", ["workstation-4x4090", "workstation-2xa100-nvlink"])
def test_workstation_hosts_have_an_assumed_price_without_gpus(name: str) -> None:
    prices = CATALOG.prices(name)
    assert prices is not None
    assert prices.default_purchase is not None
    offer = prices.offers[prices.default_purchase]
    assert offer.includes_gpus == 0
    assert offer.price.weak


BENCHMARK_NAMES = {
    "RTX-PRO-6000": "rtx-pro-6000",
    "A100-SXM-40GB": "a100-40gb-sxm",
    "A100-SXM-80GB": "a100-80gb-sxm",
    "A100-PCIe-80GB": "a100-80gb-pcie",
    "A100-80GB (PCIe link)": "a100-80gb-pcie",
    "H100-SXM": "h100-80gb-sxm",
    "H100-PCIe-80GB": "h100-80gb-pcie",
    "NVIDIA H100-NVL-94GB": "h100-94gb-nvl",
    "H200-SXM": "h200-141gb-sxm",
    "B200-SXM": "b200-180gb-sxm",
    "Gaudi2": "gaudi2",
    "MI300X": "mi300x",
    "RTX-3090": "rtx-3090",
    "RTX-3080": "rtx-3080-10gb",
    "RTX-5090": "rtx-5090",
    "RTX-PRO-6000-Server": "rtx-pro-6000-server",
    "V100-PCIe-32GB": "v100-32gb-pcie",
    "RTX-6000-Ada": "rtx-6000-ada",
    "RTX-A6000": "rtx-a6000",
    "Tesla T4": "t4",
    "GH200": "gh200-96gb",
    "H20-3e": "h20-141gb",
    "Apple-M3 Max 40‑Core GPU": "apple-m3-max-128gb",
    "Apple-M2 Ultra 76-Core GPU": "apple-m2-ultra-192gb",
    "NVIDIA GeForce RTX 4090 (Ada Lovelace)": "rtx-4090",
    "AMD Instinct MI325X 256GB HBM3e": "mi325x",
    "NVIDIA GH200 Grace Hopper Superchip 96GB": "gh200-96gb",
}


@pytest.mark.parametrize(("alias", "name"), BENCHMARK_NAMES.items())
def test_names_that_benchmarks_use_are_understood(alias: str, name: str) -> None:
    assert CATALOG.gpu(alias).id == name
