"""Everything that five articles name is here, and no sparse rate passes for a dense one; figures: docs/claims.md."""

import pytest

from sim.catalogue.catalog import load_catalog

CATALOG = load_catalog()


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
