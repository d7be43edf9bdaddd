"""Figures of a claim by kind, and mistakes in a claim's file."""

from pathlib import Path
from typing import Any

import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.claims.files import read_claim
from sim.claims.verdict import ClaimVerdict, answer
from sim.scenario.reading.errors import ScenarioErrors
from sim.yamlio import dump

CARD = {"kind": "catalogue", "of": "gpu rtx-4090", "value": "tdp_w"}


def claim(figures: dict[str, Any], **said: Any) -> dict[str, Any]:
    parts = [{"says": "it is so", "figure": next(iter(figures)), "holds": {"at_least": 1}}]
    return {
        "claim": {
            "article": "000",
            "statement": "It is so.",
            "figures": figures,
            "parts": parts,
            "reason": "It is.",
            **said,
        }
    }


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture
def checked(tmp_path: Path, catalog: Catalog):
    def check(figures: dict[str, Any], beside: dict[str, Any] | None = None, **said: Any) -> ClaimVerdict:
        path = tmp_path / "c99-made-up.yaml"
        path.write_text("# Is it so?\n" + dump({**(beside or {}), **claim(figures, **said)}))
        return answer("C99", path, catalog)

    return check


def values(found: ClaimVerdict) -> dict[str, float]:
    return {name: figure.value for name, figure in found.figures.items()}


def test_figures_are_found_in_the_order_of_their_needs(checked) -> None:
    found = checked(
        {
            "share": {"kind": "arithmetic", "formula": "ratio", "of": ["watts", 900]},
            "watts": CARD,
            "none": {"kind": "catalogue", "of": "gpu rtx-4090", "value": "nvlink_total_bytes_per_s", "absent": 0},
        }
    )
    assert values(found) == {"share": 0.5, "watts": 450.0, "none": 0.0}
    assert (found.id, found.question, found.scenario) == ("C99", "Is it so?", "c99-made-up")


def test_a_formula_takes_its_arguments_by_name(checked) -> None:
    given = {"sequence": 512, "batch": 8, "hidden": 2048, "layers": 12, "tensor": 1}
    found = checked({"bytes": {"kind": "arithmetic", "formula": "activation_bytes", "of": given}})
    assert values(found) == {"bytes": 3_422_552_064}


SCENARIO = {
    "model": "llama3.1-8b",
    "workload": {
        "arrivals": {"process": "constant", "rate_rps": 1.0},
        "lengths": {side: {"distribution": "fixed", "value": 16} for side in ("prompt", "output")},
    },
    "horizon_s": 20,
    "fleets": [{"name": "one", "pools": [{"gpu": "rtx-4090"}]}],
}


@pytest.mark.slow
def test_figures_come_from_the_memory_and_the_run_of_a_fleet(checked) -> None:
    run = {"kind": "run", "fleet": "one", "metric": "output_tokens_per_s"}
    found = checked(
        {
            "tokens_per_s": run,
            "twice": run | {"set": {"workload.arrivals.rate_rps": 2}},
            "fits": {"kind": "memory", "fleet": "one", "value": "fits"},
            "fits_large": {"kind": "memory", "fleet": "one", "value": "fits", "set": {"model": "llama3.1-70b"}},
            "bytes": {"kind": "weights", "model": "llama3.1-8b", "per": 1},
        },
        SCENARIO,
    )
    assert values(found) == {
        "tokens_per_s": pytest.approx(16, rel=0.1),
        "twice": pytest.approx(32, rel=0.1),
        "fits": 1,
        "fits_large": 0,
        "bytes": pytest.approx(2 * 8.03e9, rel=0.005),
    }


@pytest.mark.parametrize(
    ("figures", "beside", "said", "message"),
    [
        ({"a": CARD | {"of": "gpu rtx-409"}}, {}, {}, "claim.figures.a: unknown GPU"),
        ({"a": CARD | {"value": "tdp"}}, {}, {}, "claim.figures.a: gpu rtx-4090 has no 'tdp'; did you mean tdp_w?"),
        ({"a": CARD | {"kind": "catalog"}}, {}, {}, "unknown kind 'catalog'; did you mean catalogue?"),
        ({"a": {"kind": "arithmetic", "formula": "ratios", "of": [1, 2]}}, {}, {}, "did you mean ratio?"),
        ({"a": {"kind": "arithmetic", "formula": "ratio", "of": [1]}}, {}, {}, "missing a required argument"),
        ({"a": {"kind": "arithmetic", "formula": "ratio", "of": ["b", 1]}}, {}, {}, "there is no figure 'b'"),
        ({"a": {"kind": "arithmetic", "formula": "ratio", "of": ["a", 1]}}, {}, {}, "figures depend on each other"),
        ({"a": CARD}, {}, {"reason": "It is {b}."}, "claim.reason: there is no figure 'b'"),
        ({"a": {"kind": "run", "fleet": "one", "metric": "x"}}, {}, {}, "needs a scenario, with a workload and fleets"),
        ({"a": {"kind": "run", "fleet": "two", "metric": "x"}}, SCENARIO, {}, "there is no fleet 'two'"),
        ({"a": {"kind": "run", "fleet": "one", "metric": "x"}}, SCENARIO, {}, "summary.csv has no column 'x'"),
    ],
)
def test_mistakes_name_file_line_and_what_was_meant(checked, figures, beside, said, message: str) -> None:
    with pytest.raises(ScenarioErrors) as told:
        checked(figures, beside, **said)
    [error] = told.value.errors
    assert message.lower() in str(error).lower()
    assert error.path.endswith("c99-made-up.yaml")
    assert error.line > 1


def test_a_claim_needs_its_section(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "c99-made-up.yaml"
    path.write_text(dump(SCENARIO))
    with pytest.raises(ScenarioErrors, match="claim: is missing"):
        read_claim(path, catalog)


BILLED = SCENARIO | {
    "fleets": [SCENARIO["fleets"][0] | {"cost": {"acquisition": "rent", "quotes": {"rtx-4090": 0.5}}}],
    "operations": {"software": {"usd_per_gpu_year": 876}},
}


@pytest.mark.slow
def test_a_line_of_the_ledger_is_dollars_an_hour(checked) -> None:
    lines = {name: {"kind": "ledger", "fleet": "one", "component": name} for name in ("rental", "software")}
    assert values(checked(lines, BILLED)) == {"rental": pytest.approx(0.5), "software": pytest.approx(0.1)}


def test_a_component_that_nobody_pays_is_named(checked) -> None:
    with pytest.raises(ScenarioErrors, match="the bill has no component 'softwares'; did you mean software"):
        checked({"a": {"kind": "ledger", "fleet": "one", "component": "softwares"}}, BILLED)


JOB = {
    "job": {"kind": "training", "model": "resnet-50", "samples": 25600, "global_batch": 256},
    "fleets": [{"name": "one", "pools": [{"gpu": "a100-80gb-sxm", "gpus": 1}]}],
}


def test_a_training_job_has_figures_too(checked) -> None:
    run = {"kind": "run", "fleet": "one"}
    found = values(
        checked(
            {
                "samples_per_s": run | {"metric": "samples_per_s"},
                "steps": run | {"metric": "steps"},
                "makespan_h": run | {"metric": "makespan_h"},
                "fits": {"kind": "memory", "fleet": "one", "value": "fits"},
                "too_large": {
                    "kind": "memory",
                    "fleet": "one",
                    "value": "fits",
                    "set": {"job.global_batch": 4096, "job.parallel.micro_batch": 4096},
                },
            },
            JOB,
        )
    )
    assert (found["steps"], found["fits"], found["too_large"]) == (100, 1, 0)
    assert found["makespan_h"] * 3600 == pytest.approx(25600 / found["samples_per_s"])


def test_a_job_refuses_a_fleet_that_it_does_not_have(checked) -> None:
    with pytest.raises(ScenarioErrors, match="there is no fleet 'two'"):
        checked({"a": {"kind": "run", "fleet": "two", "metric": "steps"}}, JOB)
