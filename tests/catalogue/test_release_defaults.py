"""Tests of the engines' default limits by release and GPU."""

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.engine import at_version, default_limit, version_of

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
