"""Fleets with replicas for prompts and others for answers: the search against every one of them."""

from itertools import product

import pytest

import sim

PRICES = {"h100-80gb-sxm": 2.0, "h200-141gb-sxm": 3.1}
LINK = {"link": "infiniband-ndr", "overlap": "layers"}
COST = {"acquisition": "rent", "quotes": PRICES}
LENGTHS = {"prompt": {"distribution": "fixed", "value": 4000}, "output": {"distribution": "fixed", "value": 60}}
ASKED = {
    "name": "s", "model": "llama3.1-8b", "max_model_len": 8192, "horizon_s": 8, "seed": 3,
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


def test_the_cheapest_of_all_ratios_and_kinds() -> None:
    found = sim.size(ASKED | {"size": SIZE}, workers=1, quiet=True)
    every = sim.run(ASKED | {"fleets": list(every_fleet())}, workers=1, quiet=True).summary
    cheapest = every[every.meets_slo == 1].sort_values("cost_usd_per_h").iloc[0]
    assert found.winner is not None
    prompts, answers = found.winner["fleets"][0]["pools"]
    assert cheapest.fleet == f"{prompts['replicas']} {prompts['gpu']}, {answers['replicas']} {answers['gpu']}"
    assert (prompts["role"], answers["role"]) == ("prefill", "decode")
    assert found.winner["fleets"][0]["kv_transfer"] == LINK


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mixed": {}}, "size.split: stands beside mixed"),
        ({"max_replicas": 1}, "size.max_replicas: must be at least 2 for split"),
        ({"split": {"kv_transfer": {"link": "infiniband-ndx"}}}, "size.split.kv_transfer.link: unknown link"),
    ],
)
def test_what_cannot_be_looked_for(changes, told) -> None:
    with pytest.raises(sim.ScenarioErrors) as found:
        sim.size(ASKED | {"size": SIZE | changes}, quiet=True)
    assert told in str(found.value)


def test_a_budget_leaves_fleets_of_both_roles_out() -> None:
    few = SIZE | {
        "gpus": ["h100-80gb-sxm"],
        "costs": {"rented": {"acquisition": "rent", "quotes": {"h100-80gb-sxm": 2.0}}},
    }
    asked = ASKED | {"horizon_s": 4}
    within, below = (
        sim.size(asked | {"size": few | {"budget": {"usd_per_month": most}}}, workers=1, quiet=True)
        for most in (4500, 4300)  # three cards cost $4,380
    )
    assert within.winner is not None
    assert [pool["role"] for pool in within.winner["fleets"][0]["pools"]] == ["prefill", "decode"]
    assert below.winner is None
