"""data/workloads: every file is read, every table reproduces its mean, and figures typed in agree."""

from pathlib import Path

import numpy as np
import pytest

from sim.catalogue.value import Value
from sim.workload import Workload
from sim.workload.published import HourlyRates, Quantiles, published, published_ids

MIDPOINTS = (np.arange(100_000) + 0.5) / 100_000


def drawing(prompt: str) -> Workload:
    lengths = {"distribution": "empirical", "table": prompt}
    return Workload.model_validate(
        {
            "arrivals": {"process": "profile", "shape": "servegen-m-small", "rate_rps": 2},
            "lengths": {"prompt": lengths, "output": {"distribution": "fixed", "value": 1}},
        }
    )


@pytest.mark.parametrize("id", published_ids())
def test_every_file_is_sound(id: str) -> None:
    of = published(id)
    assert of.id == id
    tables = [table for table in (of.prompt_tokens, of.output_tokens, of.total_tokens, of.hourly_rps) if table]
    assert tables
    for table in tables:
        if isinstance(table, Quantiles):
            assert table.at(MIDPOINTS).mean() == pytest.approx(table.mean, rel=0.02)
        else:
            assert np.mean(table.rates) == pytest.approx(table.mean, rel=1e-3)


# Typed in from the checks that came with the traces.
@pytest.mark.parametrize(
    ("id", "requests", "rate_rps", "cv", "prompt", "output"),
    [
        ("azure-2023-conv", 19_366, 5.53, 1.09, (1155, 1020, 4142), (211, 129, 601)),
        ("azure-2023-code", 8_819, 2.57, 13.2, (2048, 1469, 7436), (28, 13, 252)),
        ("mooncake-conversation", 12_031, 3.4, None, (12_035, 6909, 85_401), (343, None, None)),
    ],
)
def test_published_figures(
    id: str, requests: int, rate_rps: float, cv: float | None, prompt: tuple[float, ...], output: tuple[float, ...]
) -> None:
    of = published(id)
    assert value(of.requests) == requests
    assert value(of.rate_rps) == pytest.approx(rate_rps, rel=0.003)
    if cv is not None:
        assert value(of.interarrival_cv) == pytest.approx(cv, rel=0.005)
    for table, (mean, median, p99) in ((of.prompt_tokens, prompt), (of.output_tokens, output)):
        assert table is not None
        assert table.mean == pytest.approx(mean, abs=0.5)
        if median is not None:
            assert table.at(np.array([0.5, 0.99])) == pytest.approx([median, p99], abs=1)


def value(of: Value | None) -> float:
    assert of is not None
    return of.value


def test_workload_reports_its_statistics() -> None:
    facts = dict(drawing("azure-2023-code/prompt").facts())
    assert list(facts) == ["arrivals.shape", "lengths.prompt.table"]
    assert facts["lengths.prompt.table"].value == 2047.85
    assert facts["lengths.prompt.table"].kind == "computed"


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("azure-2023-covn/prompt", "unknown length table 'azure-2023-covn/prompt'.*azure-2023-conv/prompt"),
        ("../gpus/a10/prompt", "unknown length table '../gpus/a10/prompt'"),
        ("azure-2023-conv/promt", "unknown length table 'azure-2023-conv/promt'.*azure-2023-conv/prompt"),
        ("azure-2023-conv", "unknown length table 'azure-2023-conv'.*azure-2023-conv/output"),
        ("fleet-sim-azure/prompt", "fleet-sim-azure/total"),
    ],
)
def test_an_unknown_table_is_named_with_its_neighbours(table: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        drawing(table).verify()


def test_an_unknown_shape_is_named() -> None:
    shapeless = {"process": "profile", "shape": "azure-2023-conv", "rate_rps": 2}
    fixed = {"distribution": "fixed", "value": 1}
    with pytest.raises(ValueError, match=r"unknown hourly profile 'azure-2023-conv'.*servegen-m-large"):
        Workload.model_validate({"arrivals": shapeless, "lengths": {"prompt": fixed, "output": fixed}}).verify()


@pytest.mark.parametrize(
    ("quantiles", "complaint"),
    [
        ([[0.1, 1], [1, 2]], "must begin at probability 0 and end at 1"),
        ([[0, 1], [0.5, 3], [1, 2]], "neither probabilities nor tokens may decrease"),
    ],
)
def test_a_table_that_falls_is_refused(quantiles: list[list[float]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Quantiles.model_validate({"source": "s", "kind": "computed", "mean": 1.5, "quantiles": quantiles})


def test_every_file_is_one_thing(root: Path) -> None:
    assert {file.suffix for file in (root / "data" / "workloads").iterdir()} == {".yaml"}
    assert isinstance(published("servegen-m-large").hourly_rps, HourlyRates)
