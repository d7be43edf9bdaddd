"""Jobs beside an inference service from scenario to bill: hours and money of service, jobs and idle GPUs are all."""

import csv
from pathlib import Path

import numpy as np
import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.jobs.kinds import QUEUE
from sim.jobs.load import load_job
from sim.jobs.outcome import QueueRow, queue_outcomes, summary
from sim.jobs.report import panels, verdict
from sim.scenario.reading.errors import ScenarioErrors
from sim.units import JOULES_PER_KWH, NANO_PER_USD

SCENARIO = """
starts_at: 2026-03-28T22:20:00
horizon_h: 48
jobs:
  - {name: large, count: 2, gpus: 3, duration_h: 14, checkpoint_h: 1, restart_h: 0.25, load: 0.5}
  - {name: small, arrival_h: 5, count: 9, gpus: 1, duration_h: 3}
fleets:
  - name: shared
    pools: [{gpu: a100-80gb-sxm, gpus: 8, server: dgx-a100}]
    serving: {replicas: {"07:30": 4, "19:00": 1}, gpus_per_replica: 2, load: 0.6}
    cost: {acquisition: buy, quotes: {dgx-a100: 150000}}
  - name: alone
    pools: [{gpu: a100-80gb-sxm, gpus: 8, server: dgx-a100}]
    cost: {acquisition: buy, quotes: {dgx-a100: 150000}}
site:
  timezone: Europe/Berlin
  electricity:
    hourly_usd_per_kwh: [.1, .1, .1, .1, .1, .1, .1, .2, .2, .2, .2, .2, .3, .3, .3, .3, .2, .2, .2, .2, .1, .1, .1, .1]
  pue: 1.2
finance: {method: straight_line, life_years: 4}
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def found(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[QueueRow]]:
    folder = tmp_path_factory.mktemp("beside")
    (folder / "s.yaml").write_text(SCENARIO)
    scenario = load_job(folder / "s.yaml", catalog=catalog)
    rows = summary(queue_outcomes(scenario, catalog))
    QUEUE.write(folder, scenario, rows, QUEUE.described(rows, catalog), False)
    return folder, rows


@pytest.mark.slow
def test_gpu_hours_of_service_jobs_and_idle_time_are_all_there_are(found: tuple[Path, list[QueueRow]]) -> None:
    shared = found[1][0].cells
    # the first night has an hour less: clocks go forward. Two days of 11.5 h with 8 GPUs, the rest of 48 h with 2
    assert shared["serving_gpu_h"] == pytest.approx(8 * 2 * 11.5 + 2 * (48 - 2 * 11.5))
    assert shared["serving_gpu_h"] + shared["jobs_gpu_h"] + shared["idle_gpu_h"] == pytest.approx(8 * 48)
    assert shared["utilisation"] == pytest.approx(shared["jobs_gpu_h"] / (8 * 48))
    assert shared["utilisation_with_serving"] == pytest.approx(1 - shared["idle_gpu_h"] / (8 * 48))
    timeline = found[1][0].outcome.timeline
    assert np.all(timeline.used + timeline.serving <= 8 + 1e-9)


def test_the_bill_is_that_of_service_jobs_and_idle_time(found: tuple[Path, list[QueueRow]]) -> None:
    folder, (shared, alone) = found
    one = shared.outcome
    assert one.ledger is not None
    idle = sum(line.amount_nano_usd for line in one.ledger.rows if line.phase == "idle")
    assert sum(one.job_nano_usd) + one.serving_nano_usd + idle == one.ledger.total_nano_usd
    assert shared.cells["idle_usd"] == idle / NANO_PER_USD
    with (folder / "costs.csv").open() as file:
        booked = [line for line in csv.DictReader(file) if line["fleet"] == "shared" and line["phase"] == "serving"]
    assert sum(float(line["amount_usd"]) for line in booked) == pytest.approx(shared.cells["serving_usd"])
    # hardware is paid by the hour, whoever has it
    hardware = [line for line in booked if line["component"] != "energy"]
    bought = one.ledger.by_component()[hardware[0]["component"]] / NANO_PER_USD
    share = shared.cells["serving_gpu_h"] / (8 * 48)
    assert sum(float(line["amount_usd"]) for line in hardware) == pytest.approx(share * bought)
    assert alone.cells["serving_usd"] == alone.cells["serving_gpu_h"] == 0
    assert "serving" not in {line.phase for line in alone.outcome.ledger.rows}  # type: ignore[union-attr]


def test_energy_is_power_times_time_of_jobs_and_service(found: tuple[Path, list[QueueRow]]) -> None:
    row = found[1][0]
    power, job_states = row.outcome.plan.pool.power, row.outcome.schedule.job_states
    assert power is not None
    loaded = 0.6 * 3600 * row.cells["serving_gpu_h"] + sum(
        work.job.gpus * work.job.load * (part.useful_s + part.lost_s) for work in job_states for part in work.segments
    )
    joules = power.server_energy_j(48 * 3600, power.gpu_energy_j(48 * 3600, loaded / 8))
    assert row.cells["energy_kwh"] == pytest.approx(1.2 * joules / JOULES_PER_KWH)


def test_the_page_shows_the_service(found: tuple[Path, list[QueueRow]]) -> None:
    told = verdict(found[1])
    assert "shared: serving holds" in told.findings[0]
    band, shared, _ = panels(found[1])[1].curves
    assert (band.name, band.filled, max(band.y)) == ("serving", True, 8)
    assert all(low <= high <= 8 + 1e-9 for low, high in zip(band.y, shared.y, strict=True))


@pytest.mark.parametrize(
    ("replicas", "complaint"),
    [
        (
            '{"07:30": 5}, gpus_per_replica: 2',
            "fleets.0.serving.replicas: holds up to 10 GPUs (5 x 2), the cluster has 8",
        ),
        ('{"25:00": 1}, gpus_per_replica: 2', 'a time of day is needed, such as "08:30"'),
        ("{}, gpus_per_replica: 2", "fleets.0.serving.replicas"),
        ('{"07:30": 1}', "fleets.0.serving.gpus_per_replica"),
        ('{"07:30": 1}, gpus_per_replica: 2, starting_s: 5', "fleets.0.serving.starting_s: unknown key"),
        ('{"07:30": 1}, gpus_per_replica: 2', "horizon_h: is missing: the service has no end"),
    ],
)
def test_a_mistake_is_one_line(catalog: Catalog, tmp_path: Path, replicas: str, complaint: str) -> None:
    path = tmp_path / "s.yaml"
    horizon = "" if "missing" in complaint else "horizon_h: 24\n"
    path.write_text(
        f"jobs: [{{gpus: 1, duration_h: 1}}]\n{horizon}fleets:\n- name: f\n  serving: {{replicas: {replicas}}}\n"
        "  pools: [{gpu: a100-80gb-sxm, gpus: 8}]\n"
    )
    with pytest.raises(ScenarioErrors) as told:
        load_job(path, catalog=catalog)
    assert complaint in str(told.value)
    assert len(str(told.value).splitlines()) == 1
