"""A policy from outside the package: named in scenarios, run in worker processes, part of what a point rests on."""

import pickle
import runpy
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.metadata import EntryPoint
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_scenario import two_fleets

import sim
from sim import registry
from sim.catalogue.catalog import load_catalog
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.schedulers.vllm import VllmScheduler
from sim.registry import version
from sim.scenario.sweep import at_point, cases
from sim.study.execution import cores
from sim.study.execution.digest import digest
from sim.yamlio import dump

POOL: dict[str, Any] = {
    "steptime": {"model": "affine", "base_s": 1.0, "per_token_s": 0.0, "per_context_token_s": 0.0},
    "batching": {"policy": "vllm", "max_num_seqs": 1, "max_num_batched_tokens": 100, "num_gpu_blocks": 100},
}
ASKED = {"arrived_s": [0.0, 0.1, 0.2], "prompt_tokens": [5, 50, 5], "output_tokens": [1, 9, 1]}


class Last:
    """Everything to the last replica."""

    def __init__(self, pools: list[str], back: int = 1) -> None:
        self.replica = len(pools) - back

    def choose(self, request: sim.Request) -> int:
        return self.replica


class ShortFirst:
    """The shortest prompt is taken first."""

    def order(self, request: sim.Request) -> int:
        return request.prompt_tokens


class OwnRank(VllmScheduler):
    """vLLM's own scheduler under another name."""


class WithoutAdmission(Scheduler):
    """Forms steps, and does not say which requests may join them."""

    def form(self, now: float) -> int:
        return 0


class Steady:
    """Every step takes as long as the first."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def leap(self, batch: sim.Batch) -> sim.Leap:
        return sim.Leap(self.step_s)


def annotated(type_: Any) -> Any:
    """A function that makes routers, with an option of that type."""

    def make(pools: Any, weights: Any) -> None: ...

    make.__annotations__["weights"] = type_
    return make


@pytest.fixture
def scenario() -> dict[str, Any]:
    return two_fleets()


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    sim.register("routing", "test_last")(Last)
    sim.register("batching", "test_short_first")(ShortFirst)
    sim.register("batching", "test_own_rank")(OwnRank)
    sim.register("steptime", "test_steady")(Steady)


@pytest.mark.slow
def test_a_router_is_chosen_by_name_and_has_options(scenario: dict[str, Any]) -> None:
    scenario["fleets"][1]["routing"] = {"policy": "test_last"}
    run = sim.run(scenario, {"sweep": None}, 1, workers=1, quiet=True)
    assert run.requests.query("fleet == 'two'").replica.eq(1).all()
    first = sim.run(scenario, {"sweep": None, "fleets.two.routing.back": 2}, 1, workers=1, quiet=True)
    assert first.requests.query("fleet == 'two'").replica.eq(0).all()


@pytest.mark.slow
def test_an_order_of_the_queue_is_a_batching_policy() -> None:
    short = POOL | {"batching": POOL["batching"] | {"policy": "test_short_first"}}
    waiting = {"arrived_s": [0.0, 0.1, 0.2], "prompt_tokens": [5, 50, 5], "output_tokens": [1, 1, 1]}
    assert sim.simulate(waiting, POOL).started_s.tolist() == [0.0, 1.0, 2.0]
    assert sim.simulate(waiting, short).started_s.tolist() == [0.0, 2.0, 1.0]
    own = POOL | {"batching": POOL["batching"] | {"policy": "test_own_rank"}}
    assert sim.simulate(waiting, own).equals(sim.simulate(waiting, POOL))


@pytest.mark.slow
def test_a_registered_step_time_equals_the_affine_model() -> None:
    steady = POOL | {"steptime": {"model": "test_steady", "step_s": 1.0}}
    assert sim.simulate(ASKED, steady).equals(sim.simulate(ASKED, POOL))


def test_mistakes_name_places_and_known_policies(scenario: dict[str, Any]) -> None:
    scenario["fleets"][0]["routing"] = {"policy": "test_lost"}
    scenario["fleets"][1]["routing"] = {"policy": "test_last", "bakc": 3, "back": "x"}
    scenario["fleets"][1]["pools"][0] |= {"steptime": {"model": "test_steady", "zz": 1}}
    with pytest.raises(sim.ScenarioErrors) as told:
        sim.check(scenario)
    lines = str(told.value).splitlines()
    assert "fleets.0.routing.policy: unknown policy 'test_lost'; did you mean test_last?" in lines
    assert "fleets.1.routing.bakc: unknown key; did you mean back?" in lines
    assert "fleets.1.routing.back: a whole number is needed, not 'x'" in lines
    assert "fleets.1.pools.0.steptime.zz: unknown key; known here: model, step_s" in lines
    assert "fleets.1.pools.0.steptime.step_s: is missing" in lines
    for wrong in (("routing", "random"), ("scaling", "mine")):
        with pytest.raises(ValueError, match=r"built-in|kinds"):
            sim.register(*wrong)(Last)  # type: ignore[arg-type]
    for kind, make, missing in (
        ("routing", Steady, "the class Steady has no method choose, which routing needs"),
        ("steptime", Last, "no method leap"),
        ("batching", Last, "no method order or form, may_admit, commit, evict"),
        ("batching", Scheduler, "no method order or form, may_admit, which"),
        ("batching", WithoutAdmission, "no method order or may_admit, which"),
    ):
        with pytest.raises(ValueError, match=missing):
            sim.register(kind, "wrong")(make)  # type: ignore[arg-type]
    declared = tuple(name for name, one in vars(Scheduler).items() if getattr(one, "__isabstractmethod__", False))
    assert declared in ((), Scheduler.abstract_methods)  # compiled methods do not say that they are abstract
    with pytest.raises(ValueError, match="max_num_seqs is one that every policy"):
        sim.register("batching", "wrong")(lambda max_num_seqs: None)


@pytest.mark.parametrize(
    ("name", "make", "told"),
    [
        ("", Last, "a policy has a name, not ''"),
        ("wrong", 3, "wrong: a class is needed, not 3"),
        ("wrong", Last([]), "wrong: a class is needed, not <"),
        ("wrong", lambda pools, copy: None, "wrong: copy cannot be the name of an option"),
        ("wrong", lambda pools, _back: None, "wrong: _back cannot be the name of an option"),
        ("wrong", annotated(np.ndarray), "wrong: a scenario cannot give the option weights of the type ndarray"),
        ("wrong", annotated("Lost"), "wrong: the type of a parameter is not known: name 'Lost' is not defined"),
    ],
)
def test_invalid_policies_are_refused(name: str, make: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        sim.register("routing", name)(make)


SCRIPT = """
import sim

@sim.register("routing", "from_main")
class FromMain:
    def __init__(self, pools):
        self.last = len(pools) - 1
    def choose(self, request):
        return self.last - {minus}

if __name__ == "__main__":
    from sim.study.execution import cores
    cores.ALONE_S = 0.0
    run = sim.run("s.yaml", workers={workers}, out="out", quiet=True)
    print(*sorted(set(run.requests.query("fleet == 'two'").replica)), len(list((run.folder / "points").iterdir())))
"""


@pytest.mark.slow
def test_a_script_s_policy_works_in_workers_and_another_version_is_simulated_anew(
    scenario: dict[str, Any], tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario["fleets"] = [scenario["fleets"][1] | {"routing": {"policy": "from_main"}}]
    (tmp_path / "s.yaml").write_text(dump(scenario | {"horizon_s": 5}))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(minus=0, workers=2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cores, "ALONE_S", cores.ALONE_S)  # which the script changes
    for minus, workers, printed in ((0, 2, "1 4\n"), (1, 1, "0 4\n")):
        script.write_text(SCRIPT.format(minus=minus, workers=workers))
        with redirect_stdout(StringIO()) as told:
            runpy.run_path(script.name, run_name="__main__")
        assert told.getvalue() == printed


@pytest.mark.slow
def test_a_remote_worker_gets_policies_that_only_the_sweep_names(scenario: dict[str, Any]) -> None:
    cluster = pytest.importorskip("sim.study.execution.cluster")
    asked = sim.check(scenario, {"sweep": {"fleets.two.routing": [{"policy": "random"}, {"policy": "test_last"}]}})
    sent = cluster._program(), cluster.packed((), load_catalog()), cluster._policies(asked.scenario), _routers
    assert [one.name for one in sent[2]] == ["test_last"]
    message = pickle.dumps((*sent, asked.scenario, ()))
    known = registry.entered()
    registry._SPECS.clear()
    try:
        assert cluster.call_on_worker(*pickle.loads(message)) == (["random", "test_last"],)
    finally:
        registry.enter(known)


def _routers(scenario: Any, catalog: Any) -> list[str]:
    points = [at_point(scenario, case.overrides) for case in cases(scenario) if case.fleet == "two"]
    return list(dict.fromkeys(point.fleets[1].routing.policy for point in points))


@pytest.mark.slow
def test_the_digest_of_a_point_holds_the_policys_code(scenario: dict[str, Any]) -> None:
    catalog = load_catalog()

    def points() -> list[str]:
        loaded = sim.check(scenario).scenario
        return [digest(loaded, case, catalog) for case in cases(loaded)]

    before = points()
    scenario["fleets"][1]["routing"] = {"policy": "test_cell"}
    versions = []
    for step in (1, 1, 2):
        cell: dict[str, Any] = {"__name__": "__main__", "STEP": step}
        exec("class Cell:\n    def choose(self, request):\n        return STEP - 1\n", cell)
        sim.register("routing", "test_cell")(cell["Cell"])
        versions.append(points())
    assert versions[0] == versions[1] != versions[2]
    assert versions[0][:4] == before[:4]
    assert not set(versions[0][4:]) & {*before, *versions[2]}
    assert version(Last) == version(Steady) != version(VllmScheduler)


@pytest.mark.slow
def test_an_entry_point_is_found_by_name(scenario: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("routing.from_package", "operator:itemgetter", registry.GROUP)
    monkeypatch.setattr(registry, "_entry_points", lambda: {point.name: point})
    monkeypatch.setattr(EntryPoint, "load", lambda _: Last)
    scenario["fleets"][1]["routing"] = {"policy": "from_package", "back": 2}
    assert sim.check(scenario).scenario.fleets[1].routing.model_dump() == {"policy": "from_package", "back": 2}


@pytest.mark.slow
def test_a_router_that_chooses_a_missing_replica_raises(scenario: dict[str, Any]) -> None:
    scenario["fleets"] = [scenario["fleets"][0] | {"routing": {"policy": "test_last", "back": -3}}]
    with pytest.raises(ValueError, match="replica 4 of 1"):
        sim.run(scenario, {"sweep": None}, 1, workers=1, quiet=True)
    assert np.isfinite(replace(sim.Leap(1.0)).first_s)


def test_a_function_that_makes_an_incomplete_policy_is_refused_when_it_is_called() -> None:
    sim.register("steptime", "test_incomplete")(lambda: Last([]))
    with pytest.raises(ValueError, match="test_incomplete: the class Last has no method leap, which steptime needs"):
        sim.simulate(ASKED, POOL | {"steptime": {"model": "test_incomplete"}})
