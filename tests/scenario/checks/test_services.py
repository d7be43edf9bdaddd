"""Services that answer in one pass: what a scenario may say of them, and what a run of them gives."""

from pathlib import Path
from typing import Any

import pytest

import sim
from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load, load_for_size
from sim.yamlio import dump

DYNAMIC = {"policy": "dynamic", "max_batch_size": 8, "max_queue_delay_s": 0.002}
AFFINE = {"model": "affine_batch", "base_s": 0.004, "per_item_s": 0.001}
STEPS = {"model": "affine", "base_s": 1, "per_token_s": 0, "per_context_token_s": 0}
FIXED = {"distribution": "fixed", "value": 10}
SERVICE_POOL = {"steptime": AFFINE, "batching": DYNAMIC | {"max_queue_delay_s": 0}}
LANGUAGE_POOL = {"gpu": "l4", "model": "llama3-8b"}
ARRIVALS = {"process": "poisson", "rate_rps": 50}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def scenario(*pools: dict[str, Any], **more: Any) -> dict[str, Any]:
    workload = {"arrivals": ARRIVALS}
    fleets = [{"name": f"f{i}", "pools": [pool]} for i, pool in enumerate(pools)]
    return {"name": "s", "workload": workload, "horizon_s": 4, "requests": "none", "fleets": fleets} | more


def complaints(folder: Path, catalog: Catalog, data: dict[str, Any]) -> list[str]:
    path = folder / "s.yaml"
    path.write_text(dump(data))
    with pytest.raises(ScenarioErrors) as told:
        load(path, catalog=catalog)
    return [line.split(": ", 1)[1] for line in str(told.value).splitlines()]


@pytest.mark.parametrize(
    ("pool", "complaint"),
    [
        (
            {"gpu": "l4", "model": "resnet-50"},
            "batching: resnet-50 answers in one pass: set batching: {policy: dynamic",
        ),
        ({"gpu": "l4", "model": "llama3-8b", "batching": DYNAMIC}, "batching.policy: llama3-8b generates tokens"),
        ({"gpu": "l4", "batching": DYNAMIC}, "model: is missing: the batch time follows from it"),
        ({"model": "resnet-50", "batching": DYNAMIC}, "gpu: is missing: the batch time follows from it"),
        (
            {"gpu": "a100-80gb-sxm", "model": "resnet-50", "quantization": "fp8", "batching": DYNAMIC},
            "quantization: a100-80gb-sxm has no known fp8 rate",
        ),
        (
            {"gpu": "l4", "model": "resnet-50", "tensor_parallel_size": 2, "batching": DYNAMIC},
            "tensor_parallel_size: must be 1: a service runs on one GPU",
        ),
        (
            {"gpu": "l4", "model": "resnet-50", "steptime": {"model": "one_pass", "steps": 3}, "batching": DYNAMIC},
            "steptime: resnet-50 generates no images",
        ),
        (
            {
                "steptime": {"model": "affine", "base_s": 1, "per_token_s": 0, "per_context_token_s": 0},
                "batching": DYNAMIC,
            },
            "steptime.model: affine gives the time of token steps",
        ),
    ],
)
def test_issues_of_a_service(tmp_path: Path, catalog: Catalog, pool: dict[str, Any], complaint: str) -> None:
    assert any(complaint in line for line in complaints(tmp_path, catalog, scenario(pool)))


def test_requests_of_services_have_no_lengths_and_all_others_do(tmp_path: Path, catalog: Catalog) -> None:
    service, language = {"steptime": AFFINE, "batching": DYNAMIC}, {"gpu": "l4", "model": "llama3-8b"}
    only = "needs arrivals and lengths, or a trace; only arrivals is given"
    assert complaints(tmp_path, catalog, scenario(language)) == [f"workload: {only}"]
    long = {"arrivals": ARRIVALS, "lengths": {"prompt": FIXED, "output": FIXED}}
    [told] = complaints(tmp_path, catalog, scenario(service, workload=long))
    assert "workload.lengths: a request of a service is one unit of work: remove lengths" in told
    both = [{"name": "f", "pools": [service, language]}]
    assert any(
        "serves a language model and a service behind one router" in line
        for line in complaints(tmp_path, catalog, scenario(service, fleets=both))
    )


def test_limits_and_options_of_tokens_are_refused(tmp_path: Path, catalog: Catalog) -> None:
    """A service of one pass has no tpot_s, so every run would meet such a limit."""
    for limit in (0.1, {"p99": 0.1}):
        [refused] = complaints(tmp_path, catalog, scenario(SERVICE_POOL, slo={"tpot_s": limit}))
        assert "slo.tpot_s: limits the time between tokens" in refused
    pool = SERVICE_POOL | {"engine": "vllm-v1", "max_model_len": 100}
    told = complaints(tmp_path, catalog, scenario(pool))
    assert [key in line for key, line in zip(("engine", "max_model_len"), told, strict=True)] == [True, True]


def test_sizing_a_service_needs_no_fleet_beside_its_candidates(tmp_path: Path, catalog: Catalog) -> None:
    costs = {"rented": {"acquisition": "rent", "quotes": {"l4": 0.6}}}
    size = {"gpus": ["l4"], "tensor_parallel_sizes": [1], "batching": [DYNAMIC], "costs": costs}
    asked = scenario(model="resnet-50", size=size, slo={"e2e_s": 0.1})
    path = tmp_path / "s.yaml"
    path.write_text(dump({key: value for key, value in asked.items() if key != "fleets"}))
    assert load_for_size(path, catalog=catalog).size is not None


@pytest.mark.slow
def test_a_run_of_a_given_batch_time_by_hand() -> None:
    burst = {"arrivals": {"process": "burst", "num_requests": 10}}
    run = sim.run(scenario({"steptime": AFFINE, "batching": DYNAMIC}, workload=burst, requests="csv"))
    requests = run.requests.sort_values("request")
    assert requests["finished_s"].tolist() == pytest.approx([0.012] * 8 + [0.018] * 2)
    assert requests["started_s"].tolist() == pytest.approx([0.0] * 8 + [0.012] * 2)


@pytest.mark.slow
def test_computed_services_are_billed_by_the_thousand() -> None:
    pool = {"gpu": "l4", "model": "sd-2.1", "steptime": {"model": "one_pass", "steps": 20}, "batching": DYNAMIC}
    cost = {"acquisition": "rent", "quotes": {"l4": 0.6}}
    fleet = {"name": "f", "pools": [pool], "cost": cost}
    load_ = {"arrivals": {"process": "constant", "rate_rps": 0.2}}
    run = sim.run(scenario(workload=load_, fleets=[fleet], horizon_s=100), workers=1, quiet=True)
    [row] = run.summary.to_dict("records")
    assert row["unit"] == "image"
    images_per_h = 3600 * row["output_tokens_per_s"]
    assert row["usd_per_thousand_units"] == pytest.approx(1000 * row["cost_usd_per_h"] / images_per_h)
    assert 0 < row["gpu_busy_fraction"] < 1
    assert "per million images" in run.verdict
    assert "per million images" in run._repr_html_()
    assert "token" not in str(run) + run._repr_html_()


@pytest.mark.parametrize(
    ("pool", "complaint"),
    [
        ({"gpu": "l4", "model": "retinanet"}, "batching.max_batch_size: 1000 need at least 52.7 GB"),
        (
            {"gpu": "a100-80gb-sxm", "mig": "1g.10gb", "model": "retinanet"},
            "at most 192 fit; 1000 fit on a slice 7g.80gb",
        ),
        (
            {"gpu": "a100-80gb-sxm", "mig": "1g.10gb", "model": "dlrm", "quantization": "int8"},
            "model: dlrm needs 24.0 GB for its weights and tables, NVIDIA A100 SXM4 80 GB 1g.10gb has 10.2; 1000 fit",
        ),
    ],
)
def test_batches_beyond_the_memory(tmp_path: Path, catalog: Catalog, pool: dict[str, Any], complaint: str) -> None:
    [told] = complaints(tmp_path, catalog, scenario(pool | {"batching": DYNAMIC | {"max_batch_size": 1000}}))
    assert complaint in told


def test_tables_of_ones_own_fit_a_slice(tmp_path: Path, catalog: Catalog) -> None:
    pool = {"gpu": "a100-80gb-sxm", "mig": "1g.10gb", "model": "dlrm", "quantization": "int8", "batching": DYNAMIC}
    path = tmp_path / "s.yaml"
    path.write_text(dump(scenario(pool | {"steptime": {"model": "one_pass", "table_bytes": 6e9}})))
    assert load(path, catalog=catalog).fleets[0].pools[0].mig == "1g.10gb"


@pytest.mark.slow
def test_a_trace_of_arrivals_alone(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "t.csv").write_text("arrival_s\n0.5\n0.5\n2.0\n")
    workload = {"trace": {"path": str(tmp_path / "t.csv"), "format": "csv"}}
    data = {"name": "s", "workload": workload, "fleets": [{"name": "f", "pools": [SERVICE_POOL]}]}
    requests = sim.run(data, quiet=True).requests.sort_values("request")
    assert requests["finished_s"].tolist() == pytest.approx([0.506, 0.506, 2.005])
    [told] = complaints(tmp_path, catalog, data | {"fleets": [{"name": "f", "pools": [LANGUAGE_POOL]}]})
    assert "workload.trace: brings no tokens: requests of a language model need prompt_tokens" in told


def test_a_trace_with_tokens_is_none_of_a_service(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0.5,1,1\n")
    workload = {"trace": {"path": str(tmp_path / "t.csv"), "format": "csv"}}
    [told] = complaints(tmp_path, catalog, scenario(SERVICE_POOL, workload=workload))
    assert "workload.trace: brings tokens, and a request of a service is one unit" in told


@pytest.mark.slow
def test_a_query_brings_several_samples() -> None:
    pool = {
        "gpu": "l4",
        "model": "dlrm",
        "quantization": "int8",
        "batching": {"policy": "dynamic", "max_batch_size": 40},
    }
    of_one = pool | {"steptime": {"model": "one_pass", "table_bytes": 6e9}}
    of_forty = of_one | {"steptime": {"model": "one_pass", "table_bytes": 6e9, "samples_per_request": 40}}
    ends = []
    for one, count in ((of_one, 40), (of_forty, 1)):
        burst = {"arrivals": {"process": "burst", "num_requests": count}}
        run = sim.run(scenario(one, workload=burst, requests="csv"), quiet=True)
        ends.append((run.requests["finished_s"].max(), run.summary["unit"][0]))
    assert ends[0][0] == pytest.approx(ends[1][0])
    assert [unit for _, unit in ends] == ["sample", "query"]


@pytest.mark.slow
def test_the_terminal_names_the_unit(tmp_path: Path, gpufleet: Any) -> None:
    pool = {"gpu": "l4", "model": "resnet-50", "quantization": "int8", "batching": DYNAMIC}
    fleets = [{"name": "f", "pools": [pool], "cost": {"acquisition": "rent", "quotes": {"l4": 0.6}}}]
    (tmp_path / "s.yaml").write_text(dump(scenario(fleets=fleets, horizon_s=1)))
    done = gpufleet("run", "s.yaml", "--no-report", "--workers", "1")
    assert "[images/s]" in done.stdout
    assert "token" not in done.stdout
    assert "latency" in done.stdout
