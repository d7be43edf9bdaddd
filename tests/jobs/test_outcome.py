"""A queue from scenario to bill: what jobs cost and idle GPUs cost is the bill, and energy is power times time."""

from math import fsum
from pathlib import Path

import numpy as np
import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.jobs.load import load_job
from sim.jobs.outcome import QueueRow, queue_outcomes, summary
from sim.jobs.report import verdict
from sim.scenario.reading.errors import ScenarioErrors
from sim.units import JOULES_PER_KWH, NANO_PER_USD

SCENARIO = Path(__file__).resolve().parents[2] / "scenarios" / "jobs-on-a-cluster.yaml"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def rows(catalog: Catalog, *sets: str, file: Path = SCENARIO) -> dict[str, QueueRow]:
    found = summary(queue_outcomes(load_job(file, sets, catalog=catalog), catalog))
    return {row.cells["policy"]: row for row in found}


@pytest.fixture(scope="module")
def shipped(catalog: Catalog) -> dict[str, QueueRow]:
    return rows(catalog)


def test_jobs_and_idle_time_are_the_bill(shipped: dict[str, QueueRow]) -> None:
    for row in shipped.values():
        one, cells = row.outcome, row.cells
        assert one.ledger is not None
        idle = sum(line.amount_nano_usd for line in one.ledger.rows if line.phase == "idle")
        assert sum(one.job_nano_usd) + idle == one.ledger.total_nano_usd
        assert cells["cost_usd"] == one.ledger.total_nano_usd / NANO_PER_USD
        assert cells["cost_usd"] == pytest.approx(8 * 1.8 * cells["makespan_h"])
        assert cells["idle_usd"] == pytest.approx(cells["cost_usd"] * (1 - cells["utilisation"]))


def test_scopes_of_a_queue_sum_to_its_emissions(catalog: Catalog) -> None:
    found = rows(catalog, "carbon={grid_g_per_kwh: 400, market: {}}", "sweep=null")
    for row in found.values():
        assert row.cells["scope_2_location_kg_co2e"] == row.cells["scope_2_market_kg_co2e"] == 0  # rented
        assert row.cells["scope_3_kg_co2e"] == pytest.approx(row.cells["kg_co2e"])


def test_checkpointed_work_survives_preemptions_in_the_books(shipped: dict[str, QueueRow]) -> None:
    cells = shipped["priority"].cells
    assert cells["preemptions"] > 0
    assert 0 < cells["lost_gpu_h"] < cells["preemptions"] * 2 * 1.0  # at most an interval of each
    job_states = shipped["priority"].outcome.schedule.job_states
    assert all(
        fsum(part.useful_s for part in work.segments) == pytest.approx(work.job.duration_s) for work in job_states
    )
    assert cells["deadlines_met"] == cells["deadlines"] > shipped["fifo"].cells["deadlines_met"]


def test_meters_add_up(shipped: dict[str, QueueRow]) -> None:
    for row in shipped.values():
        one, hours = row.outcome, row.cells["makespan_h"]
        job_states = one.schedule.job_states
        used = fsum(work.job.gpus * (part.end_s - part.start_s) for work in job_states for part in work.segments)
        assert float(np.sum(one.timeline.used * np.diff(one.timeline.edges_s))) == pytest.approx(used)
        assert row.cells["utilisation"] == pytest.approx(used / (8 * 3600 * hours))
        power = one.plan.pool.power
        assert power is not None
        loaded = fsum(
            work.job.gpus * work.job.load * (part.useful_s + part.lost_s)
            for work in job_states
            for part in work.segments
        )
        joules = power.server_energy_j(3600 * hours, power.gpu_energy_j(3600 * hours, loaded / 8))
        assert row.cells["energy_kwh"] == pytest.approx(joules / JOULES_PER_KWH)


def test_jobs_that_wait_at_the_horizon_are_counted_with_what_they_have_waited(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text("""
jobs: [{gpus: 4, duration_h: 8}, {arrival_h: 1, gpus: 4, duration_h: 1}, {arrival_h: 6, gpus: 1, duration_h: 1}]
horizon_h: 5
fleets: [{name: f, pools: [{gpu: a100-80gb-sxm, gpus: 4}], cost: {acquisition: rent, quotes: {a100-80gb-sxm: 2}}}]
""")
    [row] = rows(catalog, file=path).values()
    assert row.cells["wait_h_mean"] == (0 + 4) / 2  # the third has not arrived
    assert (row.cells["useful_share"], row.cells["lost_gpu_h"]) == (1, 0)
    [told] = verdict([row]).findings
    assert "broken off after 5 hours; 95 % of the jobs have waited at most" in told


def test_energy_of_jobs_follows_their_load(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text(
        """
jobs: [{gpus: 4, duration_h: 2, load: 1}, {gpus: 4, duration_h: 2, load: 0}]
fleets:
  - name: f
    pools: [{gpu: a100-80gb-sxm, gpus: 8}]
    cost: {acquisition: buy, quotes: {a100-80gb-sxm: 0}}
site: {electricity_usd_per_kwh: 0.1, pue: 1}
finance: {method: straight_line, life_years: 4}
"""
    )
    [row] = rows(catalog, file=path).values()
    busy, idle = row.outcome.job_nano_usd
    power = row.outcome.plan.pool.power
    assert power is not None
    assert busy / idle == pytest.approx(power.gpu.limit_w / power.gpu.idle_w)
    assert busy + idle == row.outcome.ledger.total_nano_usd  # type: ignore[union-attr]


def test_a_trace_is_replayed(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("arrival_s,gpus,duration_s\n0,4,3600\n0,8,1800\n60,16,5\n")
    path = tmp_path / "q.yaml"
    path.write_text(
        """
jobs: {trace: {format: csv, path: jobs.csv}}
fleets: [{name: f, pools: [{gpu: a100-80gb-sxm, gpus: 8}]}]
sweep: {fleets.f.pools.0.gpus: [8, 16]}
"""
    )
    found = summary(queue_outcomes(load_job(path, catalog=catalog), catalog))
    assert [(row.cells["finished"], row.cells["rejected"]) for row in found] == [(2, 1), (3, 0)]
    assert [row.cells["makespan_h"] for row in found] == [1.5, pytest.approx(1 + 5 / 3600)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("jobs: [{gpus: 1}]", "s.yaml:1: jobs.0: needs duration_h or training"),
        ("jobs: [{duration_h: 1}]", "s.yaml:1: jobs.0.gpus: is missing"),
        ("jobs: [{gpus: 1, duration_h: 1, arrival_h: 3, deadline_h: 2}]", "deadline_h: lies before the arrival at 3 h"),
        ("jobs: [{gpus: 1, duration_h: 1}]\nqueue: {policy: easy}", "s.yaml:2: queue.policy: unknown policy 'easy'"),
        ("jobs: {trace: {format: csv, path: none.csv}}", "s.yaml:1: jobs.trace.path: "),
        ("jobs: {checkpoint_h: 1}", "did you mean jobs.0.checkpoint_h or jobs.trace.checkpoint_h?"),
        ("jobs: [{gpus: 1, duration_h: 1}]\njob: {kind: training}", "jobs: conflicts with job"),
        ("jobs: [{gpus: 1, duration_h: 1}]\nslo: {ttft_s: 1}", "s.yaml:2: slo: applies to a workload of requests"),
    ],
)
def test_a_mistake_is_one_line(catalog: Catalog, tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"{text}\nfleets: [{{name: f, pools: [{{gpu: a100-80gb-sxm, gpus: 8}}]}}]\n")
    with pytest.raises(ScenarioErrors) as told:
        load_job(path, catalog=catalog)
    assert complaint in str(told.value)
