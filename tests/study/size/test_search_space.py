"""`size` buys no card without a host, keeps to a budget and needs no fleets: against an enumeration of everything."""

import csv
from functools import cache
from itertools import product
from math import ceil
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.reading.load import load_for_size
from sim.scenario.schema import Fleet
from sim.scenario.sections.size import Budget
from sim.study.execution.cores import ProcessPool
from sim.study.size.search import Search, search
from sim.study.size.search_space import NoHost, hosts
from sim.study.size.trials import Runner

SCENARIO = """\
name: s
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 14}
  lengths:
    prompt: {distribution: lognormal, mean: 400, cv: 1.0, max: 2000}
    output: {distribution: lognormal, mean: 120, cv: 0.8, max: 600}
horizon_s: 8
warmup_s: 3
slo: {ttft_s: 1, tpot_s: 0.04}
max_model_len: 4096
size:
  gpus: [rtx-4090, l40s]
  tensor_parallel_sizes: [1]
  max_replicas: 3
  costs:
    bought: {acquisition: buy}
site: {electricity_usd_per_kwh: 0.3, pue: 1.2}
finance: {method: annuity, discount_rate: 0.08, life_years: 4, residual_fraction: 0.2}
"""
SERVERS = {  # slots, price, GPUs in it, nameplate in W, of every priced server that carries the card
    "workstation-1x4090": ("rtx-4090", 1, 1300, 0, 700),
    "workstation-2x4090": ("rtx-4090", 2, 2000, 0, 1222),
    "workstation-4x4090": ("rtx-4090", 4, 3600, 0, 2278),
    "server-8x4090": ("rtx-4090", 8, 10000, 0, 4400),
    "tinybox-green": ("rtx-4090", 6, 25000, 6, (6 * 450 + 350) / 0.94),
    "workstation-7slot-trpro": ("l40s", 7, 10000, 0, 2000),
    "server-12xl40s": ("l40s", 12, 60000, 12, (12 * 350 + 1200) / 0.94),
}
CARDS = {"rtx-4090": 1650, "l40s": 5000}
CAPITAL = ("gpu_capital", "server_capital")


def everything(folder: Path) -> list[SimpleNamespace]:
    """All fleets of at most three cards, simulated."""
    scenario, catalog = scenario_of(folder), load_catalog()
    assert scenario.size is not None
    looking = Search(scenario, scenario.size, catalog, folder / "out", ProcessPool(1))
    runner = Runner(looking.scenario, catalog, folder / "out", ProcessPool(1))
    found = []
    for (server, (gpu, slots, usd, included, watts)), n in product(SERVERS.items(), (1, 2, 3)):
        pool = {"gpu": gpu, "server": server, "replicas": n}
        # an L40S has PCIe 4, whatever its host has
        pool |= {"link": "pcie4-x16"} if server == "workstation-7slot-trpro" else {}
        cost = {"acquisition": "buy"}
        fleet = Fleet.model_validate({"name": f"{n} {server}", "pools": [pool], "cost": cost})
        ((case,),) = runner.run([(fleet, 1)])
        boxes, by_component = ceil(n / slots), case.metrics["component_usd_per_h"]
        found.append(
            SimpleNamespace(
                server=server,
                n=n,
                capex=boxes * usd + (0 if included else n * CARDS[gpu]),
                kw=boxes * watts / 1e3,
                usd_per_h=sum(by_component.values()),
                operating=730 * sum(usd for name, usd in by_component.items() if name not in CAPITAL),
                attained=case.metrics["slo_attainment"],
                meets=looking._trials.meets([case]),
            )
        )
    return found


def scenario_of(folder: Path, text: str = SCENARIO):
    (folder / "s.yaml").write_text(text)
    return load_for_size(folder / "s.yaml", catalog=load_catalog())


@pytest.mark.slow
def test_no_other_host_is_cheaper_whatever_the_budget(tmp_path: Path) -> None:
    fleets, scenario = everything(tmp_path), scenario_of(tmp_path)
    assert scenario.size is not None
    ends = set()
    for limits in (
        {},
        {"capex_usd": 7000},
        {"capex_usd": 100},
        {"kw": 1.5},
        {"usd_per_month": 190},
        {"usd_per_month": 420, "kw": 2.1},
    ):
        budget = Budget(**limits) if limits else None
        size = scenario.size.model_copy(update={"budget": budget})
        found = search(scenario.model_copy(update={"size": size}), load_catalog(), tmp_path / "out", ProcessPool(1))
        allowed = [
            one
            for one in fleets
            if one.capex <= limits.get("capex_usd", 1e9)
            and one.kw <= limits.get("kw", 1e9)
            and one.operating <= limits.get("usd_per_month", 1e9)
        ]
        best = min((one for one in allowed if one.meets), key=lambda one: one.usd_per_h, default=None)
        most = max(allowed, key=lambda one: one.attained, default=None)
        if best is not None:
            ends.add("winner")
            winner = found.winner
            assert winner is not None, limits
            assert (winner.servers, winner.replicas) == (best.server, best.n), limits
            assert winner.usd_per_h == pytest.approx(best.usd_per_h, rel=1e-6)
            assert winner.needs is not None
            assert (winner.needs.capex_usd, winner.needs.kw) == pytest.approx((best.capex, best.kw))
            assert winner.operating_usd_per_month == pytest.approx(best.operating, rel=1e-3)
            assert found.best_within_budget is None
        elif most is not None:
            ends.add("nearest")
            assert found.winner is None, limits
            assert found.best_within_budget is not None, limits
            assert (found.best_within_budget.metrics or {})["slo_attainment"] == most.attained, limits
            assert found.best_within_budget in found.candidates
        else:
            ends.add("none")
            assert found.winner is found.best_within_budget is None, limits
    assert ends == {"winner", "nearest", "none"}


@cache
def fits(gpu: str, gpus: int, cap_w: float | None = None) -> dict[str | None, tuple[str | None, int | None]]:
    catalog = load_catalog()
    return {one.server: (one.link, one.most_gpus) for one in hosts(catalog.gpu(gpu), gpus, cap_w, catalog)}


def test_what_needs_which_host() -> None:
    assert fits("a100-80gb-sxm", 8) == {"dgx-a100": (None, None)}, "a board has its own server"
    assert set(fits("rtx-4090", 4)) == {"server-8gpu", "server-8x4090", "tinybox-green", "workstation-4x4090"}, "slots"
    assert fits("l4", 1)["workstation-7slot-trpro"] == ("pcie4-x16", None)
    assert fits("rtx-5090", 1) == {"workstation-7slot-trpro": ("pcie5-x16-no-p2p", 2)}, "1,500 W feed two of 575 W"
    assert fits("rtx-5090", 2, 400.0)["workstation-7slot-trpro"] == ("pcie5-x16-no-p2p", 3), "and three of 400 W"
    assert None in fits("apple-m2-ultra-192gb", 1), "a Mac is a host"
    for gpu, gpus, why in (
        ("mi325x", 1, "carries 1x mi325x$"),
        ("rtx-5090", 4, "workstation-7slot-trpro has power for 2 of them"),
        ("a100-80gb-sxm", 16, "dgx-a100 has 8 slots"),
    ):
        with pytest.raises(NoHost, match=why):
            fits(gpu, gpus)


def run(folder: Path, text: str, command: str = "size") -> SimpleNamespace:
    (folder / "s.yaml").write_text(text)
    asked = [command, str(folder / "s.yaml"), "--out", str(folder / "out"), "--no-report"]
    result = CliRunner().invoke(app, asked)
    return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr)


@pytest.mark.slow
def test_the_command_names_the_host_and_the_best_within_a_budget(tmp_path: Path) -> None:
    text = SCENARIO.replace("[rtx-4090, l40s]", "[rtx-4090, gh200-96gb]").replace("max_replicas: 3", "max_replicas: 2")
    done = run(tmp_path, text.replace("size:\n", "size:\n  budget: {capex_usd: 3000}\n"))
    assert done.code == 0, done.err
    assert "No fleet meets the service level at 14 req/s within the budget of $3,000 of capital." in done.out
    assert "1x rtx-4090 in workstation-1x4090, bought, which does not meet the service level: " in done.out
    with (tmp_path / "out/size.csv").open() as file:
        table = {row["fleet"]: row for row in csv.DictReader(file)}
    dearer = {row["why"] for row in table.values() if row["status"] == "over budget"}
    assert dearer & {"capital of $5,300 exceeds $3,000", "capital of $5,900 exceeds $3,000"}
    row = table["1x rtx-4090 in workstation-1x4090, bought"]
    assert (row["servers"], row["capex_usd"], row["nameplate_kw"]) == ("workstation-1x4090", "2950.0", "0.7")
    assert "no server in data/servers carries 1x gh200-96gb" in table["1x gh200-96gb, bought"]["why"]
    command = ["run", str(tmp_path / "out/within_budget.yaml"), "--out", str(tmp_path / "run"), "--no-report"]
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0, again.stderr
    with (tmp_path / "run/summary.csv").open() as file:
        (summary,) = csv.DictReader(file)
    assert summary["slo_attainment"] == row["slo_attainment"]
    assert not (tmp_path / "out/winner.yaml").exists()


@pytest.mark.parametrize("command", ["run", "capacity", "breakeven", "sensitivity"])
def test_other_commands_need_fleets(tmp_path: Path, command: str) -> None:
    done = run(tmp_path, SCENARIO, command)
    assert done.code == 2
    assert "fleets: is missing: only gpufleet size works without it" in done.err


MIXED = """\
name: b
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 25}
  lengths:
    prompt: {distribution: lognormal, mean: 400, cv: 1.0, max: 2000}
    output: {distribution: lognormal, mean: 120, cv: 0.8, max: 600}
horizon_s: 8
warmup_s: 3
slo: {ttft_s: 1, tpot_s: 0.04}
max_model_len: 4096
size:
  gpus: [rtx-4090]
  servers: {rtx-4090: workstation-2x4090}
  tensor_parallel_sizes: [1]
  mixed: {}
  costs:
    bought: {acquisition: buy, quotes: {rtx-4090: 1000, workstation-2x4090: 9000}}
    rented: {acquisition: rent, quotes: {rtx-4090: 0.25}}
site: {electricity_usd_per_kwh: 0.1, pue: 1.2, hosting: none}
finance: {method: annuity, discount_rate: 0.08, life_years: 6, residual_fraction: 0.2}
"""


@pytest.fixture(scope="module")
def mixed_points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of points: those simulated under one budget are reused under the next."""
    return tmp_path_factory.mktemp("mixed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "pools"),
    [("capex_usd: 11000", {"buy": 2, "rent": 1}), ("capex_usd: 10999", {"rent": 3}), ("kw: 1.2", {"rent": 3})],
)
def test_a_mixed_fleet_keeps_to_the_budget(
    tmp_path: Path, mixed_points: Path, budget: str, pools: dict[str, int]
) -> None:
    scenario = scenario_of(tmp_path, MIXED.replace("size:\n", f"size:\n  budget: {{{budget}}}\n"))
    winner = search(scenario, load_catalog(), mixed_points, ProcessPool(1)).winner
    assert winner is not None
    assert winner.fleet is not None
    ways = zip(winner.fleet.pools, winner.fleet.costs, strict=True)
    assert {cost.acquisition: pool.replicas for pool, cost in ways if cost is not None} == pools
