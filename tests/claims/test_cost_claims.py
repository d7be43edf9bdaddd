"""The cost claims of the articles: what their verdicts say without a simulation."""

from collections import defaultdict
from pathlib import Path

import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.cost.bill.charge import FlatCharge
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.sweep import cases
from sim.study.cases.cores import Cores
from sim.study.size.search import search

RMB = 0.138
CLAIMS = ("C01", "C03", "C08", "C09", "C16", "C24", "C25", "C31")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def plans_of(root: Path, catalog: Catalog):
    """The plans of a claim's fleets, by name, at the first point of its sweep."""

    def find(claim: str) -> dict[str, CasePlan]:
        [path] = (root / "scenarios" / "claims").glob(f"{claim}-*.yaml")
        scenario = load(path, ["sweep=null", "replications=1"], catalog=catalog)
        return {case.fleet: resolve(scenario, case, catalog) for case in cases(scenario)}

    return find


def usd_per_h(plan: CasePlan) -> dict[str, float]:
    assert plan.costs is not None
    sums: dict[str, float] = defaultdict(float)
    for charge in plan.costs.charges:
        if isinstance(charge, FlatCharge):
            sums[charge.component] += charge.units_per_h * charge.price.usd
    return dict(sums)


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_fleet_runs_and_the_file_opens_with_question_claim_and_verdict(root: Path, plans_of, claim: str) -> None:
    for plan in plans_of(claim).values():
        assert plan.infeasible == ""
    [path] = (root / "scenarios" / "claims").glob(f"{claim}-*.yaml")
    question, said, *_ = lines = path.read_text().splitlines()
    assert question.startswith("# ")
    assert question.endswith("?")
    assert said.startswith(f"# Claim {claim} (article of ")
    assert any(line.startswith("# Verdict: ") for line in lines[:6])


def test_c08_capital_in_the_articles_rmb(plans_of) -> None:
    capex = {name: plan.costs.capex_usd for name, plan in plans_of("C08").items()}
    assert capex["4x RTX 4090"] == pytest.approx(4 * 15_000 * RMB + 3600)
    assert capex["2x A100"] == pytest.approx(150_000 * RMB + 3600)


def test_c16_days_a_year_from_which_buying_pays(plans_of) -> None:
    bills = {name: usd_per_h(plan) for name, plan in plans_of("C16").items()}
    assert bills["rent 8x A100"] == {"rental": pytest.approx(1000 * RMB / 24)}
    assert bills["rent 8x H100"] == {"rental": pytest.approx(3000 * RMB / 24)}

    def days(owner: str, rent_rmb: float, electricity_usd_per_day: float) -> float:
        return sum(bills[owner].values()) * 8760 / (rent_rmb * RMB - electricity_usd_per_day)

    # 6.5 and 10.2 kW at PUE 1.5 and 0.12 $/kWh
    assert days("buy 8x A100", 1000, 6.5 * 1.5 * 0.12 * 24) > 365
    assert round(days("buy 8x H100", 3000, 10.2 * 1.5 * 0.12 * 24)) == 217
    assert round(days("buy 8x H100", 2000, 10.2 * 1.5 * 0.12 * 24)) == 346


def test_c25_what_a_gpu_cloud_saves_against_the_dearest(plans_of) -> None:
    rent = {name: usd_per_h(plan)["rental"] for name, plan in plans_of("C25").items()}
    saved = {name: round(100 * (1 - price / rent["AWS"])) for name, price in rent.items()}
    assert saved == {"AWS": 0, "Google": 1, "Azure": 28, "Paperspace": 38, "RunPod": 77, "Latitude": 80}


def test_c03_the_api_asks_a_fifth_of_a_cent_per_thousand_tokens(plans_of) -> None:
    for plan in plans_of("C03").values():
        assert plan.costs.api.usd(700, 0, 300) == pytest.approx(0.002)


def test_six_rtx_4090_do_not_hold_a_70b_at_half_precision(root: Path, catalog: Catalog):
    # 138 GB of weights; 24 GiB cards at 0.9 hold 23.2 GB less the engine's own
    [path] = (root / "scenarios" / "claims").glob("C09-*.yaml")
    pool = "fleets.8x RTX 4090.pools.0"
    fits = {}
    for tensor, pipeline in ((2, 3), (2, 4), (8, 1)):
        sizes = [f"{pool}.tensor_parallel_size={tensor}", f"{pool}.pipeline_parallel_size={pipeline}"]
        scenario = load(path, sizes, catalog=catalog)
        fits[tensor * pipeline, tensor] = not resolve(scenario, cases(scenario)[0], catalog).infeasible
    assert fits == {(6, 2): False, (8, 2): True, (8, 8): True}


@pytest.mark.parametrize(("rate_rps", "cards", "ratio"), [(0.5, "1x a100-80gb-pcie", 1.22), (1.5, "2x A100", 1.45)])
def test_c08_the_cheapest_fleet_for_the_70b(
    root: Path, tmp_path: Path, catalog: Catalog, rate_rps: float, cards: str, ratio: float
) -> None:
    [path] = (root / "scenarios" / "claims").glob("C08-*.yaml")
    fewer = ["replications=1", "horizon_s=500", f"workload.arrivals.rate_rps={rate_rps}"]
    found = search(load(path, fewer, catalog=catalog), catalog, tmp_path, Cores(1))
    assert found.winner is not None
    assert found.winner.name.startswith(cards)
    with_4090 = [one.usd_per_h for one in found.tried if "rtx-4090" in one.gpu and one.usd_per_h is not None]
    assert min(with_4090) / (found.winner.usd_per_h or 0) == pytest.approx(ratio, abs=0.04)
