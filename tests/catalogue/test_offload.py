"""Weights that options of an engine leave in host memory."""

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.engine import HostWeights, Offload

LLAMA = load_catalog().model("llama3.1-8b")
GIB = 2**30


@pytest.mark.parametrize(("gib", "share"), [(0.0, 0.0), (4.0, 0.25), (16.0, 1.0), (20.0, 1.0)])
def test_an_even_share_of_the_layers(gib: float, share: float) -> None:
    assert HostWeights.of(Offload(cpu_offload_gb=gib), LLAMA, 16 * GIB) == HostWeights(layer_share=share)


@pytest.mark.parametrize(
    ("on_gpu", "layers", "head"),
    # the head comes first, then the layers from the last of 32 on
    [(None, 0, False), (33, 0, False), (32, 1, False), (2, 31, False), (1, 32, False), (0, 32, True)],
)
def test_the_head_and_the_last_layers_are_on_the_gpu(on_gpu: int | None, layers: int, head: bool) -> None:
    found = HostWeights.of(Offload(n_gpu_layers=on_gpu), LLAMA, GIB)
    assert found == HostWeights(layers=layers, head=head, embedding=True)


def test_experts_of_leading_layers() -> None:
    assert HostWeights.of(Offload(n_cpu_moe=7), LLAMA, GIB) == HostWeights(expert_layers=7, embedding=True)
