"""The cheapest fleet against a search of everything, bounds against simulations, and the command from door to door.

Fleets with replicas for prompts and others for answers: the search against every one of them.
"""

import csv
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pages import charts_of, text_of
from typer.testing import CliRunner

import sim
from sim.batching import Vllm
from sim.batching.limits import Speculative
from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.cost.buying import Buy
from sim.fleet.fleet import RunningFleet
from sim.records import Batch, Leap
from sim.report.size import sentences, size_rows
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load, load_for_size
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.resolving.resolved import PoolPlan
from sim.scenario.schema import Scenario
from sim.scenario.slo import Slo
from sim.scenario.sweep import cases
from sim.steptime.affine import Affine
from sim.study.execution.cores import ProcessPool
from sim.study.execution.store import load_case
from sim.study.size.bounds import GRID_MARGIN, CandidateBounds, OfferedLoad, PoolBounds
from sim.study.size.candidates import Sizing, front
from sim.study.size.search import Search, search
from sim.study.size.search_space import units
from sim.study.size.trials import Runner
from sim.yamlio import dump

DEARER = (("rtx-4090", "rented"), ("l40s", "spot"))
"""Contracts at a higher price than another one for the same machines."""
LATENCIES = ("ttft_s_p95", "tpot_s_p95")
SCENARIO = """\
# Which card?
name: s
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 26}
  lengths:
    prompt: {distribution: lognormal, mean: 400, cv: 1.0, max: 2000}
    output: {distribution: lognormal, mean: 120, cv: 0.8, max: 600}
horizon_s: 8
warmup_s: 3
replications: 2
slo: {ttft_s: 1, tpot_s: 0.04}
max_model_len: 4096
fleets:
  - name: own
    pools: [{gpu: h100-80gb-sxm}]
    cost: {acquisition: rent, quotes: {h100-80gb-sxm: 4.0}}
size:
  gpus: [l4, rtx-4090, l40s]
  tensor_parallel_sizes: [1, 2]
  max_replicas: 3
  front_up_to: 1.6
  quantizations: [none, fp8]
  costs:
    rented: {acquisition: rent, quotes: {rtx-4090: 0.5, l40s: 0.9}}
    spot: {acquisition: rent, quotes: {rtx-4090: 0.45, l40s: 0.95, l4: 0.3}}
"""


FEW = SCENARIO.replace("[1, 2]", "[1]").replace("[none, fp8]", "[fp8]")
"""The scenario with few machines, for tests that do not enumerate them."""


def scenario_of(folder: Path, text: str = SCENARIO) -> Scenario:
    (folder / "s.yaml").write_text(text)
    return load(folder / "s.yaml", catalog=load_catalog())


@pytest.mark.slow
def test_nothing_is_cheaper_and_no_bound_is_beaten(tmp_path: Path) -> None:
    text = SCENARIO.replace("horizon_s: 8\nwarmup_s: 3", "horizon_s: 5\nwarmup_s: 2").replace("[none, fp8]", "[fp8]")
    scenario, catalog = scenario_of(tmp_path, text), load_catalog()
    assert scenario.size is not None
    found = search(scenario, catalog, tmp_path / "out", ProcessPool(1))
    looking = Search(scenario, scenario.size, catalog, tmp_path / "out", ProcessPool(2))
    runner, candidate_bounds = Runner(looking.scenario, catalog, tmp_path / "out", ProcessPool(1)), looking._bounds
    costs, latencies, tries = {}, {}, 0
    for unit in units(scenario, scenario.size, catalog):
        known = candidate_bounds.bounds_of(unit)
        if any(card in unit.name and unit.name.endswith(contract) for card, contract in DEARER):
            continue
        for replicas in (1, 2, 3) if unit.own is None else (1,):
            fleet = unit.fleet(replicas)
            cost = fleet.model_dump()["cost"]
            if not {pool.gpu for pool in fleet.pools} <= set(cost["quotes"]):
                continue  # no price
            tries += 1
            (cases,) = runner.run([(fleet, 2)])
            if cases[0].status != "ok" or not looking._trials.meets(cases):
                continue
            assert not known.reason, fleet.name
            assert known.least_replicas <= replicas, fleet.name
            costs[fleet.name] = np.mean([case.metrics["cost_usd"] / case.metrics["window_h"] for case in cases])
            latencies[fleet.name] = [np.mean([case.metrics[name] for case in cases]) for name in LATENCIES]
            least = candidate_bounds.usd_per_h(unit, replicas, 0)
            assert least <= costs[fleet.name] * (1 + 1e-6)  # a ledger rounds to nano-USD
    assert len(costs) > 10
    assert found.winner is not None
    assert found.winner.usd_per_h == pytest.approx(min(costs.values()))
    # nor is any faster for up to so much more money
    members = [(one.usd_per_h, *((one.metrics or {})[name] for name in LATENCIES)) for one in front(found, LATENCIES)]
    near = [(costs[name], *latencies[name]) for name in costs if costs[name] < 1.6 * found.winner.usd_per_h]
    assert len(near) > len([one for one in near if one[0] == min(costs.values())])
    for mine in near:
        assert any(all(a <= b * (1 + 1e-9) for a, b in zip(its, mine, strict=True)) for its in members)
    # it did not take the simulation of everything
    assert sum(one.metrics is not None for one in found.candidates) < tries * 2 / 3
    assert {one.status for one in found.candidates} == {"meets", "misses", "not simulated", "impossible"}
    assert any("no rental price for 'l4'" in one.reason for one in found.candidates)
    assert looking.run() == replace(found, simulated=0)


@pytest.mark.slow
def test_no_burst_is_answered_faster_than_the_bound(tmp_path: Path) -> None:
    text = SCENARIO.replace("{process: poisson, rate_rps: 26}", "{process: burst, num_requests: 200}")
    scenario, catalog = scenario_of(tmp_path, text.replace("horizon_s: 8\nwarmup_s: 3\n", "")), load_catalog()
    assert scenario.size is not None
    plain = scenario.model_copy(update={"size": None})
    shares = []
    for unit in units(scenario, scenario.size, catalog):
        if unit.name.endswith("spot") and "l4 " not in unit.name:
            fleet = unit.fleet(1)
            floor = PoolBounds(resolve_fleet(plain, fleet, catalog).pools[0], OfferedLoad.of(plain))
            ((case,),) = Runner(plain, catalog, tmp_path / "out", ProcessPool(1)).run([(fleet, 1)])
            shares.append(case.metrics["requests"] / case.metrics["window_h"] / 3600 / floor.replica_rps())
    assert max(shares) <= 1
    assert min(shares) > 0.4


PIPELINE = """\
name: pipeline
model: llama3.1-8b
engine: %s
quantization: %s
workload:
  arrivals: {process: burst, num_requests: %d}
  lengths: {prompt: {distribution: fixed, value: 5000}, output: {distribution: fixed, value: 3}}
slo: {ttft_s: 1}
max_model_len: 8192
fleets: [{name: a, pools: [{gpu: l40s, pipeline_parallel_size: 3}]}]
"""


@pytest.mark.slow
@pytest.mark.parametrize("requests", [1, 40])
@pytest.mark.parametrize(
    ("engine", "quantization"),
    [("vllm-0.6", "none"), ("vllm-0.11", "none"), ("sglang-0.5", "none"), ("llama.cpp", "gguf-q4_k_m")],
)
def test_no_pipeline_with_uneven_stages_beats_a_bound(
    tmp_path: Path, engine: str, quantization: str, requests: int
) -> None:
    scenario = scenario_of(tmp_path, PIPELINE % (engine, quantization, requests))
    plan = resolve(scenario, next(iter(cases(scenario))), load_catalog())
    served = RunningFleet(plan).run().requests
    floor = PoolBounds(plan.pools[0], OfferedLoad.of(scenario))
    ttft_s = min(one.first_token_s - one.arrived_s for one in served)
    assert ttft_s >= floor._ttft_s()[0] * (1 - 1e-9)
    assert ttft_s <= floor._ttft_s()[0] * 1.2 or requests > 1
    assert requests / max(one.finished_s for one in served) <= floor.replica_rps()


def pool(seats: int = 10, blocks: int = 10_000, base_s: float = 0.01) -> PoolPlan:
    steptime = Affine(model="affine", base_s=base_s, per_token_s=1e-4, per_context_token_s=0.0).build()
    limits = Vllm(
        policy="vllm", max_num_seqs=seats, max_num_batched_tokens=2048, num_gpu_blocks=blocks, max_model_len=1000
    )
    return PoolPlan("p", "", "", 1, 1, limits, steptime)


def demand(prompt: float = 100, output: float = 11) -> OfferedLoad:
    return OfferedLoad(1.0, np.full(50, prompt), np.full(50, output), False)


def test_the_cheapest_mix_of_steps_by_hand() -> None:
    # 11 tokens take 10 decodes, one step of 10 seats: 0.01 s for the step and 0.1 ms for each of 10 + 100 tokens
    assert PoolBounds(pool(), demand()).replica_rps() == pytest.approx(1 / (GRID_MARGIN * 0.021), rel=1e-6)
    # 10 steps of 100.5 to 110 tokens in the cache, 1055 in all; 10 blocks hold 160 at a time: 6.6 steps
    held = PoolBounds(pool(blocks=10), demand()).replica_rps()
    assert held == pytest.approx(1 / (GRID_MARGIN * (0.011 + 0.01 * 1055 / 160)), rel=1e-6)


def test_bounds_under_another_load_are_those_of_a_pool_with_that_load() -> None:
    whole, goal = PoolBounds(pool(), demand()), Slo(ttft_s=0.021).goals[0]
    for other in (demand(prompt=300, output=40), demand(prompt=995)):
        under, fresh = whole.under(other), PoolBounds(pool(), other)
        assert (under.replica_rps(), under.good_alone(goal)) == (fresh.replica_rps(), fresh.good_alone(goal))


def test_alone_a_request_has_its_shortest_times() -> None:
    # 100 tokens at once: 0.01 + 0.01 s to the first; then 0.01 + 0.0001 s for each
    floor = PoolBounds(pool(), demand())
    assert floor.refusal(Slo(ttft_s=0.021, tpot_s=0.0102)) == ""
    assert "10.1 ms" in floor.refusal(Slo(tpot_s=0.01))
    assert "the median takes 20 ms" in floor.refusal(Slo(ttft_s=0.019))
    assert "in all" in floor.refusal(Slo(e2e_s=0.1))
    assert "longer than its 1000 tokens" in PoolBounds(pool(), demand(prompt=995)).refusal(Slo(ttft_s=10))


class Beside:
    """10 ms of the host, and beside it 1 ms of the GPU with 5 us for each token in the cache; a fifth of the shorter
    adds to the longer.
    """

    window = None

    def leap(self, batch: Batch) -> Leap:
        gpu_s = 0.001 + 5e-6 * batch.kv_tokens
        return Leap(max(gpu_s, 0.01) + 0.2 * min(gpu_s, 0.01))


@pytest.mark.parametrize("prompt", [1, 100, 300, 500, 900])
def test_attention_beside_the_hosts_work_takes_no_time_of_its_own(prompt: int) -> None:
    floor, steptime = PoolBounds(replace(pool(), steptime=Beside()), demand(prompt)), Beside()
    mean_s = [steptime.leap(Batch(decode_seqs=10, kv_tokens=10 * (prompt + done))).first_s for done in range(1, 11)]
    # ten requests at once, with prompts for nothing: 100 tokens in ten steps
    assert floor.replica_rps() >= 10 / sum(mean_s)
    assert GRID_MARGIN * floor.replica_rps() < 1.5 * 10 / sum(mean_s)
    alone_s = steptime.leap(Batch(decode_seqs=1, kv_tokens=prompt)).first_s
    assert floor.refusal(Slo(tpot_s=alone_s * 1.001)) == ""
    assert floor.refusal(Slo(tpot_s=alone_s * 0.8))


def test_with_drafts_a_step_brings_several_tokens() -> None:
    limits = pool().batching.model_copy(update={"speculative": Speculative(num_speculative_tokens=3, acceptance=0.9)})
    floor = PoolBounds(replace(pool(), batching=limits), demand())
    # 10 tokens in 2.5 steps at least, whatever the drafts cost
    assert floor.replica_rps() == pytest.approx(1 / (GRID_MARGIN * (0.0025 + 102.5e-4)), rel=1e-6)
    assert floor.refusal(Slo(tpot_s=0.0026)) == ""
    assert "2.52 ms" in floor.refusal(Slo(tpot_s=0.0025))


def run(folder: Path, text: str, *options: str) -> SimpleNamespace:
    (folder / "s.yaml").write_text(text)
    result = CliRunner().invoke(
        app, ["size", str(folder / "s.yaml"), "--out", str(folder / "out"), "--workers", "1", *options]
    )
    return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_command_answers_and_its_winner_runs(tmp_path: Path) -> None:
    text = FEW.replace("[fp8]", "[none, fp8]").replace("horizon_s: 8\nwarmup_s: 3", "horizon_s: 4\nwarmup_s: 1")
    done = run(tmp_path, text)
    assert done.code == 0, done.err
    assert "is the cheapest fleet that meets the service level at 26 req/s" in done.out
    table = rows(tmp_path / "out/size.csv")
    assert table[0]["why"] == "the cheapest"
    assert all(row["why"] for row in table)
    assert any(row["why"].startswith("costs at least ") for row in table)
    front = rows(tmp_path / "out/pareto.csv")
    assert front[0]["fleet"] == table[0]["fleet"]
    page = (tmp_path / "out/size.html").read_text()
    assert len(charts_of(page)) == 4
    folded = re.findall(r"<summary>(.*) \((\d+)\)</summary>", text_of(page))  # the losers, by their reason
    lost = {status: sum(row["status"] == status for row in table) for status in ("misses", "not simulated")}
    assert sum(int(count) for reason, count in folded if reason.startswith("Misses")) == lost["misses"]
    assert ("Not simulated: the lower bound of the cost is already higher", str(lost["not simulated"])) in folded
    assert "http:" not in text_of(page)
    points = len(list((tmp_path / "out/points").iterdir()))
    assert run(tmp_path, text, "--no-report").out == done.out
    assert len(list((tmp_path / "out/points").iterdir())) == points
    command = ["run", str(tmp_path / "out/winner.yaml"), "--out", str(tmp_path / "run"), "--no-report", "--quiet"]
    assert CliRunner().invoke(app, command).exit_code == 0
    (row,) = rows(tmp_path / "run/summary.csv")
    assert row["fleet"] == table[0]["fleet"]
    assert row["meets_slo"] == "true"
    assert float(row["cost_usd_per_month"]) == pytest.approx(float(table[0]["usd_per_month"]))


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "status"), [(1, "impossible"), (2, "not simulated")])
def test_a_fleet_of_the_scenarios_own_has_its_spares_among_its_replicas(
    tmp_path: Path, replicas: int, status: str
) -> None:
    text = SCENARIO.replace("rate_rps: 26", "rate_rps: 6").replace("max_replicas: 3", "spare_replicas: 1")
    text = text.replace("[l4, rtx-4090, l40s]", "[l40s]").replace("horizon_s: 8", "horizon_s: 6")
    text = text.replace("{gpu: h100-80gb-sxm}", f"{{gpu: h100-80gb-sxm, replicas: {replicas}}}")
    found = search(scenario_of(tmp_path, text), load_catalog(), tmp_path / "out", ProcessPool(1))
    (own,) = [one for one in found.candidates if one.machine == "fleet own"]
    assert own.status == status
    assert own.gpus == replicas, "paid for as it stands"
    if status == "impossible":
        assert own.reason == "does not have 1 spare replicas in every pool"


@pytest.mark.slow
def test_the_smallest_machine_may_win_a_search_of_mixed_fleets(tmp_path: Path) -> None:
    text = FEW.replace("rate_rps: 26", "rate_rps: 1").replace("max_replicas: 3", "max_replicas: 3\n  mixed: {}")
    text = text.replace("[l4, rtx-4090, l40s]", "[l4, rtx-4090]").replace("[fp8]", "[none, fp8]")
    scenario = scenario_of(tmp_path, text)
    found = search(scenario, load_catalog(), tmp_path / "out", ProcessPool(1))
    assert found.winner is not None
    assert scenario.size is not None
    assert found.mixed is not None
    bought = scenario.size.model_copy(update={"costs": {"bought": Buy(acquisition="buy")}})
    told = [sentences(found, scenario.model_copy(update={"size": size})) for size in (scenario.size, bought)]
    assert ["servers of their own" in said[-1] for said in told] == [False, True]
    refuses = replace(found.winner, unanswered={"rejected": 0.19, "timed_out": 0.0, "lost": 0.01})
    first = sentences(replace(found, winner=refuses), scenario)[0].replace("\u00a0", " ")
    assert first.startswith(told[0][0])
    assert first.endswith(f" Requests without an answer: {refuses.name} (19 % rejected, 1.0 % lost with a replica).")
    assert found.mixed.trials == ()
    assert found.mixed.proved


@pytest.mark.slow
def test_load_without_requests_is_reported(tmp_path: Path) -> None:
    text = FEW.replace("rate_rps: 26", "rate_rps: 0.00001").replace("[l4, rtx-4090, l40s]", "[l40s]")
    scenario = scenario_of(tmp_path, text)
    found = search(scenario, load_catalog(), tmp_path / "out", ProcessPool(1))
    assert found.winner is None
    whys = {row["why"] for row in size_rows(found, scenario) if row["status"] == "misses"}
    assert whys == {"no request arrives in the window (1 of 2 replications)"}


@pytest.mark.slow
def test_low_first_replication_does_not_exclude_a_candidate(tmp_path: Path) -> None:
    text = SCENARIO.replace("{process: poisson, rate_rps: 26}", "{process: gamma, rate_rps: 3, cv: 3}")
    text = text.replace("[l4, rtx-4090, l40s]", "[rtx-4090]").replace("replications: 2", "replications: 4\nseed: 4")
    text = text.replace("[none, fp8]", "[none]").replace("horizon_s: 8\nwarmup_s: 3", "horizon_s: 45\nwarmup_s: 20")
    scenario = scenario_of(tmp_path, text.replace("tpot_s: 0.04", "tpot_s: 0.04, attainment: 0.9"))
    found = search(scenario, load_catalog(), tmp_path / "out", ProcessPool(1))
    assert found.winner is not None
    assert (found.winner.replicas, found.winner.inconclusive) == (2, False)
    cheaper = found.candidates[1]
    assert (cheaper.machine, cheaper.inconclusive) == ("1x rtx-4090 none", True)
    first = [case for case in map(load_case, (tmp_path / "out/points").iterdir()) if case and not case.replication]
    shares = [case.metrics["slo_attainment"] for case in first if case.fleet == cheaper.name]
    assert max(shares) < 0.9, "the target"
    told = sentences(found, scenario)
    kept = "The 95 % interval of 1x rtx-4090 none, spot contains the target: 97\u00a0% of the requests, "
    kept += "interval 7[0-9] to 99[.][0-9]\u00a0%, "
    kept += "90\u00a0% asked for; set replications to 16 to halve the interval, or a longer horizon_s[.]"
    assert told[0].startswith("2x (1x rtx-4090 none, spot) is the cheapest fleet that meets the service level at 3 r")
    assert told[0].endswith(" Inconclusive whether 1x rtx-4090 none, spot, $329 a month, meets it.")
    assert re.fullmatch(kept, told[1])
    assert size_rows(found, scenario)[1]["slo_verdict"] == "inconclusive"


@pytest.mark.slow
def test_spares_are_paid_for(tmp_path: Path) -> None:
    text = FEW.replace("[l4, rtx-4090, l40s]", "[rtx-4090]")
    text = text.replace("rate_rps: 26", "rate_rps: 6").replace("max_replicas: 3", "spare_replicas: 1")
    found = search(scenario_of(tmp_path, text), load_catalog(), tmp_path / "out", ProcessPool(1))
    assert found.winner is not None
    plain = scenario_of(tmp_path, text.replace("spare_replicas: 1", "spare_replicas: 0"))
    without = search(plain, load_catalog(), tmp_path / "out", ProcessPool(1))
    assert without.winner is not None
    assert found.winner.replicas == without.winner.replicas
    assert found.winner.gpus == without.winner.gpus + 1
    assert found.winner.usd_per_h == pytest.approx(without.winner.usd_per_h + 0.45)  # one more card on spot
    assert found.winner.name.startswith(f"{found.winner.replicas}+1x (")


@pytest.mark.slow
def test_nothing_meets(tmp_path: Path) -> None:
    done = run(tmp_path, FEW.replace("ttft_s: 1,", "ttft_s: 0.001,"))
    assert done.code == 0, done.err
    assert "No fleet meets the service level" in done.out
    assert not (tmp_path / "out/winner.yaml").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("gpus: [l4, rtx", "gpus: [l44, rtx", "s.yaml:19: size.gpus.0: unknown gpu 'l44'"),
        ("[none, fp8]", "[none, fp88]", "size.quantizations.1: "),
        ("max_replicas: 3", "servers: {l40s: server-8x4090}", "size.servers.l40s: server-8x4090 holds rtx-4090"),
        ("max_replicas: 3", "rents: {r: {a10: a10/oracle-on-demand-2025-10}}", "size.rents.r.a10: a10 is not among"),
        ("max_replicas: 3", "rents: {r: {l4: l4/nobody}}", "size.rents.r.l4: "),
        ("[1, 2]", "[1, 1]", "size.tensor_parallel_sizes: 1 is given twice"),
        ("spot: {acquisition: rent, quotes", "spot: {acquisition: buy, quotes", "finance: buying needs finance"),
        ("slo: {ttft_s: 1, tpot_s: 0.04}\n", "", "slo: a fleet is sized to at least one limit"),
        ("max_replicas: 3", "max_replicas: 0", "size.max_replicas: "),
        (SCENARIO[SCENARIO.index("size:") :], "", "size: is missing"),
    ],
)
def test_bad_input(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert SCENARIO.count(old) == 1
    done = run(tmp_path, SCENARIO.replace(old, new))
    assert done.code == 2
    assert line in done.err
    assert not (tmp_path / "out").exists()


PRICES = {"h100-80gb-sxm": 2.0, "h200-141gb-sxm": 3.1}
LINK = {"link": "infiniband-ndr", "overlap": "layers"}
COST = {"acquisition": "rent", "quotes": PRICES}
LENGTHS = {"prompt": {"distribution": "fixed", "value": 4000}, "output": {"distribution": "fixed", "value": 60}}
ASKED = {
    "name": "s", "model": "llama3.1-8b", "max_model_len": 8192, "horizon_s": 2, "seed": 3,
    "workload": {"arrivals": {"process": "poisson", "rate_rps": 12}, "lengths": LENGTHS},
    "slo": {"ttft_s": 0.6, "tpot_s": 0.0095}, "requests": "none",
}  # fmt: skip
SIZE = {
    "gpus": list(PRICES), "servers": {"h100-80gb-sxm": "dgx-h100"}, "tensor_parallel_sizes": [1], "max_replicas": 3,
    "costs": {"rented": COST}, "split": {"kv_transfer": LINK},
}  # fmt: skip


def every_fleet():
    for (first, second), (prompts, answers) in product(product(PRICES, repeat=2), ((1, 1), (1, 2), (2, 1))):
        pools = [
            {"name": "p", "role": "prefill", "gpu": first, "replicas": prompts},
            {"name": "a", "role": "decode", "gpu": second, "replicas": answers},
        ]
        for pool in pools:
            pool |= {"server": "dgx-h100"} if pool["gpu"] == "h100-80gb-sxm" else {}
        name = f"{prompts} {first}, {answers} {second}"
        yield {"name": name, "pools": pools, "kv_transfer": LINK, "cost": COST}
    for gpu, replicas in product(PRICES, (1, 2, 3)):
        yield {"name": f"{replicas} {gpu}", "pools": [{"gpu": gpu, "replicas": replicas}], "cost": COST}


@pytest.mark.slow
def test_the_cheapest_of_all_ratios_and_kinds() -> None:
    found = sim.size(ASKED | {"size": SIZE}, workers=1, quiet=True)
    every = sim.run(ASKED | {"fleets": list(every_fleet())}, workers=1, quiet=True).summary
    cheapest = every[every.meets_slo == 1].sort_values("cost_usd_per_h").iloc[0]
    assert found.winner is not None
    prompts, answers = found.winner["fleets"][0]["pools"]
    assert cheapest.fleet == f"{prompts['replicas']} {prompts['gpu']}, {answers['replicas']} {answers['gpu']}"
    assert (prompts["role"], answers["role"]) == ("prefill", "decode")
    assert found.winner["fleets"][0]["kv_transfer"] == LINK


@pytest.mark.slow
def test_no_prompt_long_enough_to_move_needs_one_replica_for_prompts(tmp_path: Path) -> None:
    link = LINK | {"min_prompt_tokens": 5000}
    (tmp_path / "s.yaml").write_text(dump(ASKED | {"size": SIZE | {"split": {"kv_transfer": link}}}))
    scenario = load_for_size(tmp_path / "s.yaml", catalog=load_catalog())
    assert scenario.size is not None
    bounds = CandidateBounds(scenario, load_catalog())
    split = [one for one in units(scenario, scenario.size, load_catalog()) if one.beside is not None]
    assert split
    assert {(bounds.bounds_of(one).reason, bounds.bounds_of(one).least_replicas) for one in split} == {("", 1)}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mixed": {}}, "size.split: conflicts with mixed"),
        ({"max_replicas": 1}, "size.max_replicas: must be at least 2 for split"),
        ({"split": {"kv_transfer": {"link": "infiniband-ndx"}}}, "size.split.kv_transfer.link: unknown link"),
    ],
)
def test_what_cannot_be_looked_for(changes, told) -> None:
    with pytest.raises(sim.ScenarioErrors) as found:
        sim.size(ASKED | {"size": SIZE | changes}, quiet=True)
    assert told in str(found.value)


@pytest.mark.slow
def test_budget_excludes_split_fleets_that_exceed_it() -> None:
    few = SIZE | {
        "gpus": ["h100-80gb-sxm"],
        "costs": {"rented": {"acquisition": "rent", "quotes": {"h100-80gb-sxm": 2.0}}},
    }
    within, below = (
        sim.size(ASKED | {"size": few | {"budget": {"usd_per_month": most}}}, workers=1, quiet=True)
        for most in (4500, 4300)  # three cards cost $4,380
    )
    assert within.winner is not None
    assert [pool["role"] for pool in within.winner["fleets"][0]["pools"]] == ["prefill", "decode"]
    assert below.winner is None


def search_of(folder: Path, text: str) -> Sizing:
    return search(scenario_of(folder, text), load_catalog(), folder / "out", ProcessPool(1))


CEILING = FEW.replace("max_replicas: 3\n", "max_replicas: 3\n  cost_ceiling: {%s}\n").replace("[l4, ", "[")
CEILING = CEILING.replace("horizon_s: 8\nwarmup_s: 3", "horizon_s: 4\nwarmup_s: 1")


@pytest.mark.slow
def test_the_fastest_fleet_within_the_ceiling_is_found(tmp_path: Path) -> None:
    speeds = []
    for limit in ("usd_per_h: 1.3", "usd_per_h: 2.6"):
        found = search_of(tmp_path, CEILING % limit)
        best = found.fastest
        assert best is not None
        assert best.tokens_per_s_per_user is not None
        assert best.usd_per_h is not None
        assert best.usd_per_h <= float(limit.rpartition(" ")[2])
        within = [one for one in found.candidates if one.status == "meets" and (one.usd_per_h or 9.0) <= best.usd_per_h]
        assert best.tokens_per_s_per_user == max(one.tokens_per_s_per_user or 0.0 for one in within)
        speeds.append(best.tokens_per_s_per_user)
    assert speeds == sorted(speeds)
    per_token = best.usd_per_million_output_tokens
    assert per_token is not None
    again = search_of(tmp_path, CEILING % f"usd_per_million_output_tokens: {per_token * 1.0001}").fastest
    assert again is not None
    assert (again.tokens_per_s_per_user or 0.0) >= best.tokens_per_s_per_user
    told = sentences(found, scenario_of(tmp_path, CEILING % limit))
    assert told[0].startswith(f"{best.name} is the fastest fleet that meets the service level at 26 req/s for at most")
    none = search_of(tmp_path, CEILING % "usd_per_h: 0.01")
    assert none.fastest is None
    assert none.winner is not None


@pytest.mark.parametrize(
    ("limit", "text"),
    [("", "usd_per_h or usd_per_million_output_tokens is needed"), ("usd_per_h: 0", "must be above 0")],
)
def test_a_ceiling_needs_a_limit(tmp_path: Path, limit: str, text: str) -> None:
    with pytest.raises(ScenarioErrors, match=text):
        scenario_of(tmp_path, CEILING % limit)
