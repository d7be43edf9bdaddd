"""MLPerf rows predicted."""

import numpy as np
import pytest

from sim.benchdata.mlperf import MlperfRow
from sim.catalogue.catalog import load_catalog
from sim.fidelity.services import ServiceOutcome, accelerator_of, predict, predict_all, spellings

CATALOG = load_catalog()
PUBLISHED = [
    ("NVIDIA H100-SXM-80GB", 8, "resnet50", "offline", 710521.0),
    ("NVIDIA H100-SXM-80GB", 8, "retinanet", "server", 13979.3),
    ("NVIDIA H100-SXM-80GB", 8, "bert-99.9", "offline", 62036.9),
    ("NVIDIA A100-PCIe-80GB", 1, "bert-99", "offline", 3184.2),
    ("NVIDIA A100-PCIe-80GB (1x1g.10gb MIG)", 4, "bert-99.9", "offline", 255.502),
    ("NVIDIA A30", 1, "retinanet", "offline", 341.4),
    ("NVIDIA L4", 1, "3d-unet-99", "offline", 1.0610),
    ("NVIDIA H200-SXM-141GB", 8, "dlrm-v2-99", "server", 585209.0),
    ("NVIDIA H200-NVL-141GB", 8, "stable-diffusion-xl", "offline", 17.0907),
    ("NVIDIA T4", 1, "dlrm-99", "offline", 33860.5),
]
"""Accelerator, how many, benchmark, scenario, samples/s: MLPerf Inference v3.0 to v5.1."""


def row(accelerator: str, benchmark: str = "bert-99", scenario: str = "offline", **more: object) -> MlperfRow:
    return MlperfRow(line=2, id="1", accelerator=accelerator, benchmark=benchmark, scenario=scenario, **more)  # type: ignore[arg-type]


def outcome(accelerator: str, benchmark: str = "bert-99", scenario: str = "offline", **more: object) -> ServiceOutcome:
    return predict(row(accelerator, benchmark, scenario, **more), CATALOG)


def test_published_results_come_out_within_a_fifth_in_the_median() -> None:
    rows = [
        row(accelerator, benchmark, scenario, n_accelerators=count, measured={"samples_s": rate})
        for accelerator, count, benchmark, scenario, rate in PUBLISHED
    ]
    told: list[int] = []
    errors = [one.error("samples_s") for one in predict_all(rows, CATALOG, 1, lambda done, *_: told.append(done))]
    assert told == list(range(1, len(rows) + 1))
    assert np.median(np.abs(np.array(errors, dtype=float))) < 0.15
    assert max(abs(error) for error in errors if error is not None) < 0.4


def test_accelerators_add_up_and_a_query_is_answered_by_one() -> None:
    one, eight = (outcome("NVIDIA L4", n_accelerators=count).metrics["samples_s"] for count in (1, 8))
    assert eight == pytest.approx(8 * one)
    alone, several = (outcome("NVIDIA L4", scenario="singlestream", n_accelerators=count).metrics for count in (1, 8))
    assert alone == several


def test_a_latency_limit_costs_throughput_and_so_does_a_power_cap() -> None:
    offline = outcome("NVIDIA L4", "resnet50").metrics["samples_s"]
    assert outcome("NVIDIA L4", "resnet50", "server").metrics["samples_s"] < offline
    assert outcome("NVIDIA L4", "resnet50", system="L4x1_MaxQ").metrics["samples_s"] < offline


def test_slices_are_counted_by_the_name() -> None:
    found = accelerator_of("NVIDIA A100-PCIe-80GB (3x1g.10gb MIG)", CATALOG)
    assert (found.gpu.id, found.profile, found.slices) == ("a100-80gb-pcie", "1g.10gb", 3)
    one = outcome("NVIDIA A100-PCIe-80GB (1x1g.10gb MIG)", n_accelerators=4)
    assert one.gpu == "a100-80gb-pcie/1g.10gb"
    assert outcome("NVIDIA A100-PCIe-80GB (3x1g.10gb MIG)").metrics["samples_s"] == 3 * one.metrics["samples_s"]


@pytest.mark.parametrize(
    ("accelerator", "benchmark", "scenario", "reason"),
    [
        ("NVIDIA Q1", "bert-99", "offline", "unknown accelerator 'NVIDIA Q1'"),
        ("NVIDIA L4 (1x1g.3gb MIG)", "bert-99", "offline", "unknown accelerator 'NVIDIA L4 (1x1g.3gb MIG)'"),
        ("NVIDIA L4", "llama2-70b-99", "offline", "benchmark 'llama2-70b-99' is not a one-pass service"),
        ("NVIDIA L4", "3d-unet-99", "server", "the scenario 'server' of 3d-unet-99 is not predicted"),
    ],
)
def test_unpredictable_rows_have_a_reason(accelerator: str, benchmark: str, scenario: str, reason: str) -> None:
    one = outcome(accelerator, benchmark, scenario)
    assert (one.status, one.reason, one.metrics) == ("not_covered", reason, {})


def test_spellings_drop_maker_and_memory() -> None:
    assert spellings("NVIDIA GeForce RTX 4090")[-1] == "RTX 4090"
    assert accelerator_of("AMD Instinct MI300X 192GB HBM3", CATALOG).gpu.id == "mi300x"
