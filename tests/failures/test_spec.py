"""Failures and spot capacity as scenarios say them: mistakes are one line each, and a trace keeps its hours."""

from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.sweep import cases

SCENARIO = """\
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 1.0}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 10}}
horizon_s: 100
slo: {ttft_s: 1}
fleets:
  - name: a
    pools:
      - {gpu: rtx-4090, replicas: 4, name: first%s}
      - {gpu: rtx-4090, name: second}
"""
CATALOG = load_catalog()
SERVER = ", server: workstation-4x4090"


def written(folder: Path, more: str, below: str = "") -> Path:
    file = folder / "s.yaml"
    file.write_text(SCENARIO % more + below)
    return file


MISTAKES = [
    (", failures: {replica: {mtbf_h: 0, repair_h: 1}}", "replica.mtbf_h: must be above 0, not 0"),
    (", failures: {replica: {repair_h: 1}}", "replica: either mtbf_h or rate (an id in data/failures) is needed"),
    (", failures: {gpu: {rate: h100-llama, repair_h: 1}}", "gpu.rate: unknown failure rate 'h100-llama'; did you mean"),
    (
        f"{SERVER}, failures: {{server: {{rate: a100-bloom, repair_h: 1}}}}",
        "server.rate: a100-bloom is the rate of a gpu, not of a server",
    ),
    (", failures: {psu: {mtbf_h: 9, repair_h: 1}}", "psu: needs a server: the pool names none"),
    (", failures: {detection_s: 3}", "failures: states no component that fails"),
    (
        ", failures: {replica: {mtbf_h: 9, repair_h: 1}, spares: {count: 1}}",
        "spares: need a server to run in: the pool names none",
    ),
    (
        f"{SERVER}, failures: {{replica: {{mtbf_h: 9, repair_h: 1}}, spares: {{count: 4}}}}",
        "spares.count: 4 of 4 replicas cannot all be spares: at most 3",
    ),
    (
        ", spot: {interruptions_per_h: 60, recovery_h: 1, notice_s: 120}",
        "spot.notice_s: 120 s of notice exceed the mean time between interruptions, 60 s",
    ),
    (
        ", spot: {interruptions_per_h: 1, recovery_h: 1, notice_s: 9, fallback: secnd}",
        "fallback: 'secnd' names no other pool of this fleet; did you mean second?",
    ),
    (
        f"{SERVER}, failures: {{replica: {{mtbf_h: 9, repair_h: 1}}, spares: {{count: 1, kind: cold, takeover_s: 9}}}}",
        "spares: takeover_s applies to warm spares: a cold spare has none",
    ),
    (
        ", failures: {maintenance: {every_h: 2, takes_h: 2}}",
        "maintenance: takes_h (2) must be below every_h (2)",
    ),
    (", spot: {notice_s: 9}", "spot: either interruptions_per_h or trace is needed"),
    (", spot: {trace: {never: 1}, notice_s: 9}", "a number of hours from the start is needed, not 'never'"),
    (", cold_start: {total_s: 9}", "cold_start: nothing switches these replicas"),
    (", autoscalling: {policy: kpa}, cold_start: {total_s: 9}", "autoscalling: unknown key; did you mean autoscaling?"),
    (", failures: {replicas: {mtbf_h: 9, repair_h: 1}}", "failures.replicas: unknown key; did you mean replica?"),
]


@pytest.mark.parametrize(("more", "message"), MISTAKES)
def test_a_mistake_is_one_line(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ScenarioErrors) as raised:
        load(written(tmp_path, more), (), catalog=CATALOG)
    (line,) = str(raised.value).splitlines()
    assert "s.yaml:10" in line
    assert message in line


def test_circuit_breaking_needs_clients_that_time_out(tmp_path: Path) -> None:
    with pytest.raises(ScenarioErrors, match=r"admission\.ejection: counts timeouts, .*give client\.timeout_s"):
        load(written(tmp_path, "", "    admission: {ejection: {}}\n"), (), catalog=CATALOG)


def test_the_hours_of_a_trace_survive_a_sweep(tmp_path: Path) -> None:
    trace = ", spot: {trace: {0: 4, 2.5: 1}, notice_s: 9, fallback: second}"
    file = written(tmp_path, trace, "sweep: {workload.arrivals.rate_rps: [1, 2]}\n")
    scenario = load(file, (), catalog=CATALOG)
    plan = resolve(scenario, cases(scenario)[1], CATALOG)
    assert plan.pools[0].spot.trace == {0.0: 4, 2.5: 1}
    assert [pool.on_call for pool in plan.pools] == [False, True]


def test_a_replica_works_while_all_that_it_needs_does(tmp_path: Path) -> None:
    failures = "failures: {replica: {mtbf_h: 9, repair_h: 1}, server: {mtbf_h: 99, repair_h: 0.5}, detection_s: 1800}"
    scenario = load(written(tmp_path, f"{SERVER}, {failures}"), (), catalog=CATALOG)
    plan = resolve(scenario, cases(scenario)[0], CATALOG)
    assert plan.pools[0].failures.availability == pytest.approx(9 / 10.5 * 0.99)
