"""Replicas on MIG slices: whole GPUs are counted, charged and powered, and what no slice uses is idle."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import sim
from sim.batchtime.coefficients import load_coefficients
from sim.batchtime.roofline import batch_time_s, slice_of, speed_of, work_of
from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.model import OtherModel
from sim.power import GpuPower
from sim.records import Batch
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.resolving.bind import power_coefficients
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.schema import Scenario
from sim.study.size.bounds import CandidateBounds
from sim.study.size.candidates import gpus_of
from sim.study.size.search_space import units
from sim.yamlio import dump

A100 = "a100-80gb-sxm"
DYNAMIC = {"policy": "dynamic", "max_batch_size": 8}
AFFINE = {"model": "affine_batch", "base_s": 0.004, "per_item_s": 0.001}
BUY = {"acquisition": "buy", "quotes": {A100: 7000}}
SLICE = {"gpu": A100, "mig": "1g.10gb", "batching": DYNAMIC, "steptime": AFFINE}
WHOLE = {"gpu": A100, "batching": DYNAMIC, "steptime": AFFINE}


def scenario(rate_rps: float = 50, **pools: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": "s",
        "workload": {"arrivals": {"process": "constant", "rate_rps": rate_rps}},
        "horizon_s": 3.6,
        "fleets": [{"name": name, "pools": held, "cost": BUY} for name, held in pools.items()],
        "site": {"electricity_usd_per_kwh": 0.2, "pue": 1.5, "hosting": "none"},
        "finance": {"method": "straight_line", "life_years": 4},
        "cost_per_request": True,
    }


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def run() -> Any:
    return sim.run(
        scenario(
            seven=[SLICE | {"replicas": 7}],
            eight=[SLICE | {"replicas": 8}],
            mixed=[SLICE | {"mig": "3g.40gb"}, SLICE | {"replicas": 3, "name": "small"}],
            whole=[WHOLE],
        ),
        quiet=True,
    )


@pytest.mark.slow
def test_seven_slices_are_one_gpu_and_the_eighth_needs_another(run: Any) -> None:
    rows = {row["fleet"]: row for row in run.summary.to_dict("records")}
    assert {name: (row["gpus"], row["capex_usd"]) for name, row in rows.items()} == {
        "seven": (1, 7000),
        "eight": (2, 14000),
        "mixed": (1, 7000),
        "whole": (1, 7000),
    }
    gpu_s = run.usage.groupby("fleet")["gpu_s"].sum() / (run.usage["end_s"].max() - 0.0)
    assert gpu_s["eight"] == pytest.approx(2, rel=0.01)


@pytest.mark.slow
def test_unused_slices_are_booked_as_idle(run: Any) -> None:
    """14 slices of which 8 are used: 6/14 of capital is idle whatever the load, and of the rest what is not busy."""
    costs, rows = run.costs, run.summary.set_index("fleet")
    capital = costs[(costs["component"] == "gpu_capital")].groupby(["fleet", "phase"])["amount_usd"].sum()
    for fleet, used in (("seven", 1), ("eight", 8 / 14), ("mixed", 6 / 7), ("whole", 1)):
        busy = capital[fleet, "decode"] / capital[fleet].sum()
        assert busy == pytest.approx(used * rows.loc[fleet, "gpu_busy_fraction"], rel=0.02), fleet
    sums = costs.groupby("fleet")["amount_usd"].sum()
    hours = 3.6 / 3600
    for fleet, amount in sums.items():
        assert amount == pytest.approx(rows.loc[fleet, "cost_usd_per_h"] * hours, rel=1e-6)
    booked = run.requests.groupby("fleet")["cost_usd"].sum()
    assert (booked < sums).all()


@pytest.mark.slow
def test_idle_slices_draw_the_idle_power_of_whole_gpus(catalog: Catalog) -> None:
    run = sim.run(scenario(1e-6, eight=[SLICE | {"replicas": 8}], whole=[WHOLE]), quiet=True)
    power = GpuPower.of(catalog.gpu(A100), power_coefficients(catalog))
    assert power is not None
    watts = run.summary.set_index("fleet")["gpu_power_w_mean"]
    assert watts["eight"] == pytest.approx(2 * power.idle_w, rel=5e-3)
    assert watts["whole"] == pytest.approx(power.idle_w, rel=1e-2)


@pytest.mark.slow
def test_a_full_card_of_busy_slices_draws_its_sms_part_of_the_way_to_the_limit(catalog: Catalog) -> None:
    run = sim.run(scenario(8000, seven=[SLICE | {"replicas": 7}]) | {"horizon_s": 0.4}, quiet=True)
    power = GpuPower.of(catalog.gpu(A100), power_coefficients(catalog))
    assert power is not None
    expected = power.idle_w + 7 * 14 / 108 * (power.limit_w - power.idle_w)
    assert run.summary["gpu_power_w_mean"][0] == pytest.approx(expected, rel=0.03)


@pytest.mark.slow
def test_a_finished_run_on_slices_is_billed_anew_to_the_cent(run: Any) -> None:
    again = run.price()
    assert again.summary["cost_usd_per_h"].tolist() == run.summary["cost_usd_per_h"].tolist()
    assert again.costs["amount_usd"].tolist() == run.costs["amount_usd"].tolist()


def test_a_pool_of_one_slice_has_the_batch_time_that_is_validated(catalog: Catalog) -> None:
    pool = {
        "gpu": "a100-80gb-pcie",
        "mig": "1g.10gb",
        "batching": DYNAMIC,
        "model": "resnet-50",
        "quantization": "int8",
    }
    data = scenario(one=[pool]) | {"fleets": [{"name": "one", "pools": [pool]}]}
    plan = resolve_fleet(Scenario.model_validate(data), Scenario.model_validate(data).fleets[0], catalog)
    model = catalog.any_model("resnet-50")
    device = slice_of(catalog.gpu("a100-80gb-pcie"), "1g.10gb", "int8")
    assert isinstance(model, OtherModel)
    assert device is not None
    factors = load_coefficients(catalog.root / "batchtime.yaml").factors(model, device)
    expected = batch_time_s(work_of(model, "int8", 8), speed_of(device, factors))
    assert plan.pools[0].steptime.leap(Batch(decode_seqs=8, sampled_seqs=8)).first_s == pytest.approx(expected)
    assert plan.pools[0].gpus == Fraction(1)


def test_a_language_model_sees_the_memory_of_its_slice(catalog: Catalog) -> None:
    fixed = {"distribution": "fixed", "value": 8}
    data = scenario() | {"model": "llama-3.1-8b-instruct", "max_model_len": 2048}
    data["workload"] = {
        "arrivals": {"process": "burst", "num_requests": 1},
        "lengths": {"prompt": fixed, "output": fixed},
    }
    data["fleets"] = [
        {"name": mig, "pools": [{"gpu": A100, "mig": mig, "batching": {"policy": "vllm"}}]}
        for mig in ("1g.10gb", "3g.40gb")
    ]
    read = Scenario.model_validate(data)
    small, half = (resolve_fleet(read, fleet, catalog) for fleet in read.fleets)
    assert "1x 10 GB leave" in small.infeasible
    assert "or on a slice 1g.20gb (4 on a GPU)" in small.infeasible
    assert "tensor_parallel" not in small.infeasible
    assert not half.infeasible
    assert half.pools[0].memory is not None
    assert half.pools[0].memory.total_bytes == 42.4e9


@pytest.mark.parametrize(
    ("pool", "complaint"),
    [
        ({"mig": "1g.5gb"}, "mig: a100-80gb-sxm has no profile '1g.5gb': it has 1g.10gb (7 on a GPU)"),
        (
            {"mig": "1g.5gb", "gpu": "rtx-4090"},
            "mig: rtx-4090 has no MIG profiles in the catalogue; these GPUs have: a100",
        ),
        ({"mig": "1g.5gb", "gpu": None}, "mig: needs a gpu that is cut into slices"),
        (
            {"tensor_parallel_size": 2},
            "tensor_parallel_size: must be 1: MIG slices have no link between them; a larger",
        ),
        ({"schedule": {"starting_s": 0, "replicas": {"00:00": 1}}}, "schedule: needs whole GPUs"),
    ],
)
def test_slices_that_the_driver_would_refuse(
    tmp_path: Path, catalog: Catalog, pool: dict[str, Any], complaint: str
) -> None:
    held = {key: value for key, value in (SLICE | pool).items() if value is not None}
    path = tmp_path / "s.yaml"
    path.write_text(dump(scenario(f=[held])))
    with pytest.raises(ScenarioErrors) as told:
        load(path, catalog=catalog)
    assert any(complaint in line for line in str(told.value).splitlines()), str(told.value)


def test_size_tries_slices_and_counts_whole_gpus(catalog: Catalog) -> None:
    choice = {
        "gpus": [A100],
        "mig": ["none", "1g.10gb"],
        "tensor_parallel_sizes": [1, 2],
        "batching": [DYNAMIC],
        "costs": {"rented": {"acquisition": "rent", "quotes": {A100: 2}}},
    }
    read = Scenario.model_validate(
        scenario(whole=[WHOLE]) | {"size": choice, "slo": {"e2e_s": 0.1}, "model": "resnet-50"}
    )
    assert read.size is not None
    found = {one.name: one for one in units(read, read.size, catalog)}
    assert set(found) == {"whole", f"1x {A100}, rented", f"2x {A100}, rented", f"1g.10gb of {A100}, rented"}
    slices = found[f"1g.10gb of {A100}, rented"]
    candidate_bounds = CandidateBounds(read, catalog)
    assert [candidate_bounds.usd_per_h(slices, replicas, 0) for replicas in (7, 8)] == pytest.approx([2, 4])
    assert gpus_of(slices.fleet(8), read, catalog) == 2
