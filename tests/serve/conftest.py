"""Fixtures of the server tests: one small finished run, and a server on a copy of its folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from sim.answers.run import run_scenario
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.layers import options
from sim.scenario.reading.load import load
from sim.scenario.reading.shipped import scenario_file
from sim.serve.guard import Access
from sim.serve.http_server import application
from sim.serve.workspace import Workspace
from sim.study.execution.cores import ProcessPool

HOST = "127.0.0.1:8765"
SHORT = {
    "replications": 2,
    "horizon_s": 40,
    "warmup_s": 5,
    "sweep": {"workload.arrivals.rate_rps": [0.5, 2]},
    "finance.currency": "EUR",
    "finance.fx": {"EUR": 1.25},
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve") / "demo"
    catalog = load_catalog()
    scenario = load(scenario_file(Path("4x4090-vs-2xa100")), options(SHORT), catalog=catalog)
    with ProcessPool(1) as cores:
        run_scenario(scenario, catalog, folder, cores, report=False, quiet=True, command=["test"])
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "outputs" / "demo")
    return tmp_path


@pytest.fixture
def access() -> Access:
    return Access.of("127.0.0.1", 8765)


@pytest.fixture
def client(folder: Path, access: Access) -> Iterator[TestClient]:
    """Return a client that sends what the page sends: host, origin, cookie and the token for changes."""
    cookie = f"{access.cookie}={access.token}"
    headers = {"origin": f"http://{HOST}", "x-csrf-token": access.change_token, "cookie": cookie}
    with TestClient(application(Workspace(folder), access), f"http://{HOST}", headers=headers) as found:
        yield found
