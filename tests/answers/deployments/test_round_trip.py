"""Deployments that `init --from` reads back: the same plan, out of a tool's words and into them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sim.answers.deployments.formats import FORMATS
from sim.answers.deployments.servers import groups_of
from sim.answers.from_files.draft import draft_of
from sim.answers.from_files.text import scenario_text
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, cases
from sim.steptime.options import Roofline

CATALOG = load_catalog()
SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"
FLEETS = [
    ("4x4090-vs-2xa100", 0),
    ("4x4090-vs-2xa100", 1),
    ("autoscale-day", 1),
    ("autoscale-day", 2),
    ("autoscale-day", 3),
    ("disaggregated-h100", 1),
    ("kv-tiers", 1),
    ("offload-70b-on-4090", 1),
    ("4090-boxes-on-ethernet", 0),
    ("failures-n-plus-k", 1),
]
"""Shipped scenarios and the index of a fleet."""
CACHES = ("__", "_b")
"""Starts of the names of attributes that hold results computed so far."""
PLAIN: dict[int, tuple[Any, Any]] = {}
"""Object, by its id, and its data: plans share most of theirs."""


@cache
def case_of(name: str, index: int) -> tuple[Scenario, Case, dict[str, Any]]:
    """Return a shipped scenario, the first case of its fleet *index*, and what a deployment states of its plan."""
    scenario = load(SCENARIOS / f"{name}.yaml", catalog=CATALOG)
    case = next(case for case in cases(scenario) if case.fleet == scenario.fleets[index].name)
    return scenario, case, deployed(resolve(scenario, case, CATALOG))


def deployed(plan: CasePlan) -> dict[str, Any]:
    """Return the part of *plan* that a deployment states: pools by name, routing, transfer and admission."""
    parts = {"routing": plan.routing, "kv_transfer": plan.kv_transfer, "admission": plan.admission}
    return plain({pool.name: replace(pool, service="") for pool in plan.pools} | parts)


def plain(value: Any) -> Any:
    """Return *value* as data that compares by content: objects by the values of their attributes."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(one) for one in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if id(value) not in PLAIN:
        names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        names += vars(value) if hasattr(value, "__dict__") else []
        found = {name: plain(getattr(value, name)) for name in names if hasattr(value, name) and name[:2] not in CACHES}
        PLAIN[id(value)] = value, {type(value).__name__: found} if found else repr(value)
    return PLAIN[id(value)][1]


def read_back(folder: Path, text: str, ending: str) -> CasePlan:
    """Return the plan of the scenario that `init --from` writes for a deployment with *text*."""
    file, target = folder / f"deployment{ending}", folder / "again.yaml"
    file.write_text(text)
    target.write_text(scenario_text(draft_of([file], target, CATALOG), "gpufleet init again"))
    again = load(target, catalog=CATALOG)
    return resolve(again, cases(again)[0], CATALOG)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["vllm", "kubernetes", "kserve", "llm-d", "dynamo"])
@pytest.mark.parametrize(("name", "index"), FLEETS)
def test_a_deployment_read_back_is_the_same_plan(tmp_path: Path, name: str, index: int, form: str) -> None:
    scenario, case, plan = case_of(name, index)
    ending, write = FORMATS[form]
    text = write(groups_of(scenario, case, CATALOG), ["head"])
    assert deployed(read_back(tmp_path, text, ending)) == plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        ("vllm", {"graph_tokens": 2048, "stream_interval": 4}, "--max-cudagraph-capture-size=2048 --stream-interval=4"),
        ("vllm", {"cuda_graphs": False, "host_factor": 1.5}, "--enforce-eager"),
        ("vllm", {"graph_tokens": 0}, ""),
        ("sglang", {"cuda_graphs": False, "stream_interval": 8}, "--disable-cuda-graph --stream-interval=8"),
        ("sglang", {"graph_tokens": 2048, "cuda_graphs": True}, ""),
        ("sglang", {"fp8_gemm_backend": "flashinfer_trtllm"}, "--fp8-gemm-backend=flashinfer_trtllm"),
        ("sglang", {"moe_backend": "triton"}, "--moe-runner-backend=triton"),
        ("vllm", {"moe_backend": "cutlass"}, "--moe-backend=cutlass"),
        ("sglang", {"moe_backend": "flashinfer_trtllm_routed"}, "--moe-runner-backend=flashinfer_trtllm_routed"),
    ],
)
def test_options_of_the_step_time_are_read_back(
    tmp_path: Path, engine: str, options: dict[str, Any], words: str
) -> None:
    scenario, _, _ = case_of("4x4090-vs-2xa100", 1)
    fleet = scenario.fleets[1]
    pool = fleet.pools[0].model_copy(update={"engine": engine, "steptime": Roofline(**options)})
    scenario = scenario.model_copy(update={"fleets": (fleet.model_copy(update={"pools": (pool,)}),)})
    case = cases(scenario)[0]
    [group] = groups_of(scenario, case, CATALOG)
    assert set(words.split()) <= set(group.arguments)
    assert "--max-cudagraph-capture-size=0" not in group.arguments  # which vLLM refuses
    for form in ("vllm", "kubernetes"):
        ending, write = FORMATS[form]
        again = read_back(tmp_path, write([group], ["head"]), ending)
        assert deployed(again) == deployed(resolve(scenario, case, CATALOG))
