"""Files sent to a cluster: only those below the scenario's folder, and over TLS where the address asks for it."""

import subprocess
from pathlib import Path

import dask.config
import pytest
from dask_machines import Machines
from small_scenario import REFEREE, variant
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.reading.layers import files_of
from sim.scenario.reading.load import load
from sim.study.execution.cluster import _relocated, packed

SCENARIO = variant(
    REFEREE,
    {
        "workload": {"trace": {"path": "%s", "format": "csv"}},
        "horizon_s": ...,
        "fleets.0.pools.0.batching.max_num_seqs": 4,
    },
)
TRACE = "arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,10,5\n"
NOBODY = "tcp://127.0.0.1:9"
CONFIG = """{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
"num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 4096}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner = tmp_path / "inner"
    inner.mkdir()
    for place in (tmp_path, inner):
        (place / "t.csv").write_text(TRACE)
    (inner / "link.csv").symlink_to(tmp_path / "t.csv")
    return inner


@pytest.mark.parametrize("trace", ["../t.csv", "link.csv", "../inner/../t.csv"])
@pytest.mark.parametrize("command", ["run", "capacity"])
def test_files_elsewhere_are_not_sent(folder: Path, trace: str, command: str) -> None:
    (folder / "s.yaml").write_text(SCENARIO % trace + "horizon_s: 3\nslo: {ttft_s: 1}\n")
    asked = [command, str(folder / "s.yaml"), "--cluster", NOBODY, "--out", str(folder / "out")]
    done = CliRunner().invoke(app, asked)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert f"does not lie below {folder}, and only files there are sent to workers: copy it there" in done.stderr
    assert not (folder / "out").exists()


def test_files_named_by_other_sweep_points_are_not_sent(folder: Path) -> None:
    (folder / "s.yaml").write_text(SCENARIO % "t.csv" + "sweep: {workload.trace.path: [t.csv, ../t.csv]}\n")
    done = CliRunner().invoke(app, ["run", str(folder / "s.yaml"), "--cluster", NOBODY, "--out", str(folder / "out")])
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.slow
def test_model_folder_keeps_its_name_on_the_worker(folder: Path, tmp_path: Path) -> None:
    """The model is named after the folder of its config.json, which the worker must find under the same name."""
    import io
    import zipfile

    (folder / "my-net").mkdir()
    (folder / "my-net" / "config.json").write_text(CONFIG)
    (folder / "s.yaml").write_text("model: my-net\n" + SCENARIO % "t.csv")
    catalog = load_catalog()
    here = load(folder / "s.yaml", catalog=catalog)
    files = [str(file) for file in files_of(here.model_dump(mode="json", exclude_unset=True))]
    assert {Path(file).name for file in files} == {"config.json", "t.csv"}
    with zipfile.ZipFile(io.BytesIO(packed(files, catalog))) as archive:
        archive.extractall(tmp_path / "worker")
    there = _relocated(here, tmp_path / "worker" / "files")
    assert there.model is not None
    assert there.workload.trace is not None
    assert (tmp_path / "worker") in Path(there.model).parents
    assert (tmp_path / "worker") in Path(there.workload.trace.path).parents
    assert catalog.model(there.model) == catalog.model(here.model or "")


def certificates(folder: Path) -> tuple[Path, Path]:
    """A certificate that is its own authority, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=gpufleet",
         "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@pytest.mark.slow
def test_tls(folder: Path, tmp_path: Path) -> None:
    (folder / "s.yaml").write_text(SCENARIO % "t.csv")
    asked = ["run", str(folder / "s.yaml"), "--no-report", "--quiet", "--out", str(folder / "out"), "--cluster"]
    without = CliRunner().invoke(app, [*asked, "tls://127.0.0.1:9"])
    assert (without.exit_code, len(without.stderr.splitlines())) == (1, 1)
    assert "needs certificates: set DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in without.stderr

    cert, key = certificates(tmp_path)
    machines = Machines(tmp_path, "--tls-ca-file", str(cert), "--tls-cert", str(cert), "--tls-key", str(key))
    try:
        machines.worker()
        assert machines.address.startswith("tls://")
        tls = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(cert) for name in ("CA_FILE", "CLIENT__CERT")}
        tls["DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY"] = str(key)
        given = dask.config.merge(dask.config.config, dask.config.collect_env(tls))  # as dask reads them at its import
        with dask.config.set(given):
            done = CliRunner().invoke(app, [*asked, machines.address])
    finally:
        machines.stop()
    assert done.exit_code == 0, done.stderr
    assert (folder / "out" / "summary.csv").is_file()
