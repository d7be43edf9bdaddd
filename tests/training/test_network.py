"""Networks of images: published parameters and arithmetic follow from dimensions."""

import pytest

from sim.catalogue.catalog import load_catalog
from sim.training.bind import job_figures
from sim.training.figures import network_named
from sim.training.memory import activation_bytes
from sim.training.network import ForwardCost

CATALOG = load_catalog()


def named(name: str) -> ForwardCost:
    return network_named(name, CATALOG, job_figures(CATALOG).data)


@pytest.mark.parametrize(
    ("name", "params", "published"),  # torchvision, timm; arXiv 2010.11929, table 1 (g: NeMo user guide)
    [
        ("ViT-B/16", 86_567_656, 86e6),
        ("ViT-L/16", 304_326_632, 307e6),
        ("ViT-H/14", 632_045_800, 632e6),
        ("ViT-g/14", 1_012_612_000, 1011e6),
    ],
)
def test_a_vision_transformer_has_its_published_parameters(name: str, params: int, published: float) -> None:
    assert named(name).params == pytest.approx(params, rel=1e-6)
    assert named(name).params == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(
    ("name", "sequence", "gmacs"),  # timm, results/benchmark-infer-amp-nhwc-pt113-cu117-rtx3090.csv: infer_gmacs
    [
        ("vit_base_patch16_224", 197, 17.58),
        ("vit_base_patch16_224", 577, 55.54),
        ("vit_large_patch16_224", 197, 61.6),
        ("vit_large_patch16_224", 577, 191.21),
        ("vit_huge_patch14_224", 257, 167.4),
        ("vit_giant_patch14_224", 257, 267.18),
    ],
)
def test_an_image_costs_its_published_multiply_adds(name: str, sequence: int, gmacs: float) -> None:
    network = named(name)
    flop = network.forward_flop + network.head_flop + 4 * network.attention_width * sequence
    assert flop * sequence / 2e9 == pytest.approx(gmacs, rel=2e-3)


def test_a_vision_transformer_stores_34_sbh_a_layer_and_shares_them_among_ranks() -> None:
    network = named("vit-l-16")
    assert network.image_tokens == 197
    assert activation_bytes(network, 197, 197, keeps_scores=False) == 34 * 197 * 1024 * 24
    assert activation_bytes(network, 197, 197) == (34 * 1024 + 5 * 16 * 197) * 197 * 24
    assert not network.causal
