"""Every command that simulates, on two worker processes: the same points and the same tables as on this machine."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
from coarse_answers import answer_coarsely
from dask_machines import START_S, Machines, contents
from distributed import Client
from small_scenario import TWO_OR_ONE, variant
from typer.testing import CliRunner
from warm import Started

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.reading.load import load
from sim.study import breakeven, cost_gap
from sim.study.capacity import capacities
from sim.study.execution import cluster
from sim.study.execution.cases import CaseJob
from sim.study.execution.cluster import Cluster
from sim.study.execution.cores import ProcessPool
from sim.study.execution.durable import POINTS

pytestmark = pytest.mark.slow

CATALOG = load_catalog()
SCENARIO = variant(
    TWO_OR_ONE,
    {
        "name": "spread",
        "workload.arrivals.rate_rps": 4,
        "horizon_s": 2,
        "replications": 2,
        "slo": {"ttft_s": 1, "tpot_s": 0.04},
        "size": {
            "gpus": ["rtx-4090", "l40s"],
            "max_replicas": 3,
            "spare_replicas": 1,
            "costs": {"rented": {"acquisition": "rent", "quotes": {"rtx-4090": 0.5, "l40s": 0.9}}},
        },
        "plan": {"years": 1, "starts": "2026-01"},
    },
)
TRACED = {"trace": {"path": "requests.csv", "format": "csv"}}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start beside many others take their time; what is simulated does not."""
    monkeypatch.setattr(cluster, "CONNECT_S", START_S)
    monkeypatch.setattr(cluster, "WORKERS_S", START_S)
    answer_coarsely(monkeypatch.setattr)
    monkeypatch.setattr(cost_gap, "FULL_HORIZON_S", 2.0)
    monkeypatch.setattr(breakeven, "STEPS", 3)
    monkeypatch.setattr(breakeven, "HALVINGS", 3)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    found = Machines(tmp_path_factory.mktemp("machines"))
    found.worker()
    found.worker()
    yield found
    found.stop()


@pytest.mark.parametrize(
    "command",
    [
        ["capacity", "--relative", "0.5", "--replications", "1"],
        ["size"],
        ["breakeven", "--replications", "1"],
        ["plan", "--relative", "0.5", "--replications", "1"],
    ],
    ids=lambda command: command[0],
)
def test_command_gives_equal_results_on_the_cluster(
    command: Sequence[str], machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    monkeypatch.setattr(cluster, "packed", lambda *inputs, pack=cluster.packed: sent.append(inputs) or pack(*inputs))
    (tmp_path / "s.yaml").write_text(SCENARIO)
    assert there_and_here(command, tmp_path, machines)
    assert len(sent) == 1


def there_and_here(command: Sequence[str], folder: Path, machines: Machines) -> list[str]:
    """Runs *command* on the cluster and on this machine, and compares; the names of the tables."""
    for out, place in (("there", ["--cluster", machines.address]), ("here", ["--workers", "1"])):
        options = ["--out", str(folder / out), "--no-report", *place]
        done = CliRunner().invoke(app, [command[0], str(folder / "s.yaml"), *command[1:], *options])
        assert done.exit_code == 0, done.stderr
    there, here = (contents(folder / out / POINTS) for out in ("there", "here"))
    assert there == here
    tables = [path.name for path in sorted((folder / "here").glob("*.csv"))]
    for table in tables:
        assert (folder / "there" / table).read_bytes() == (folder / "here" / table).read_bytes()
    return tables


RECIPES = {"SLURMCluster": "dask_jobqueue", "KubeCluster": "dask_kubernetes.operator"}


def test_recipes_print_a_command_that_runs(
    root: Path, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, int]] = []
    made = SimpleNamespace(scheduler_address=machines.address)
    made.scale = made.adapt = lambda **given: asked.append(given)
    text = (root / "docs/cluster.md").read_text()
    for recipe in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        [(kind, package)] = [one for one in RECIPES.items() if one[0] in recipe]
        for name in (package, package.partition(".")[0]):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        setattr(sys.modules[package], kind, lambda **_: made)
        exec(compile(recipe, kind, "exec"), {"input": lambda _: ""})
    assert asked == [{"jobs": 8}, {"minimum": 0, "maximum": 200}]
    program, command, _, *options = capsys.readouterr().out.splitlines()[0].split()
    (tmp_path / "s.yaml").write_text(SCENARIO)
    short = ["--set", "horizon_s=1", "--replications", "1", "--no-report", "--quiet", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [command, str(tmp_path / "s.yaml"), *options, *short])
    assert (program, done.exit_code) == ("gpufleet", 0), done.stderr


class Losing(Cluster):
    """A cluster that loses a worker once it has done something."""

    doomed: ClassVar[list[Started]] = []

    def finished(self) -> CaseJob:
        job = super().finished()
        while self.doomed:
            self.doomed.pop().kill()
        return job


def test_search_continues_after_losing_a_worker(machines: Machines, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    scenario = load(tmp_path / "s.yaml", catalog=CATALOG)
    Losing.doomed.append(machines.worker())
    with Client(machines.address, set_as_default=False) as client:
        client.wait_for_workers(len(machines.processes) - 1, timeout=START_S)
    with Losing(machines.address) as there:
        found = list(capacities(scenario, CATALOG, tmp_path / "there", there, 0.3))
    assert not Losing.doomed
    here = list(capacities(scenario, CATALOG, tmp_path / "here", ProcessPool(1), 0.3))
    assert [one.mean for one in found] == [one.mean for one in here]
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_counterfactuals_are_simulated_on_workers_with_their_trace(machines: Machines, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(variant(SCENARIO, {"workload": TRACED}))
    rows = [f"{0.1 * i:.1f},{100 + i},{20 + i}" for i in range(30)]
    (tmp_path / "requests.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    assert there_and_here(["sensitivity"], tmp_path, machines) == ["gap.csv", "sensitivity.csv"]
    counterfactuals = contents(tmp_path / "there" / cost_gap.COUNTERFACTUALS)
    assert len(counterfactuals) > 8
    assert counterfactuals == contents(tmp_path / "here" / cost_gap.COUNTERFACTUALS)


def test_without_an_answer_the_command_ends_as_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 0.05)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    for command in ("run", "capacity", "size", "sensitivity", "breakeven", "plan"):
        options = ["--out", str(tmp_path / command), "--cluster", "tcp://127.0.0.1:9"]
        done = CliRunner().invoke(app, [command, str(tmp_path / "s.yaml"), *options])
        assert done.exit_code == 1
        assert done.stderr.splitlines()[-1].startswith("--cluster: no scheduler answers at tcp://127.0.0.1:9")


@pytest.mark.parametrize("address", ["foo", "tcp://foo", "foo:8786", "tcp://foo:bar", "tcp://me:hunter2@foo:8786"])
def test_an_address_is_needed(tmp_path: Path, address: str) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = CliRunner().invoke(
        app, ["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o"), "--cluster", address]
    )
    assert done.exit_code == 2
    shown = address.replace("me:hunter2@", "")
    assert done.stderr == f"--cluster {shown}: an address such as tcp://host:8786 or tls://host:8786 is needed\n"
    assert not (tmp_path / "o").exists()
