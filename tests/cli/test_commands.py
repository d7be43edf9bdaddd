"""The command line as a user meets it: what it prints, where, and the exit code.

What is wrong with the command line itself is one line too.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.cells import cell_len
from small_scenario import REFEREE
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.cli.frame import next_command
from sim.language import LANGUAGES
from sim.scenario.reading.load import load

Command = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Inside = Callable[..., Done]


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """The command line in this process, which is much faster, in the test's own empty directory."""
    monkeypatch.chdir(tmp_path)

    def command(*args: str | Path) -> Done:
        result = CliRunner().invoke(app, list(map(str, args)), prog_name="gpufleet")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return command


KINDS = ("gpus", "models", "quantizations", "kernels", "engines", "servers", "links", "prices", "grids", "drafters")
KINDS += ("failures",)


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["check", "--help"]])
def test_help(gpufleet: Command, args: list[str]) -> None:
    done = gpufleet(*args)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("code", LANGUAGES)
def test_short_help_of_commands_is_not_cut(gpufleet: Command, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = gpufleet("--help", "--lang", code)
    assert "..." not in done.stdout.partition("Commands")[2] + done.stdout.partition("命令")[2]
    assert max(map(cell_len, done.stdout.splitlines())) <= 80


@pytest.mark.slow
def test_a_scenario_is_checked_before_anything_runs(inside: Inside, root: Path, tmp_path: Path) -> None:
    done = inside("check", root / "scenarios" / "4x4090-vs-2xa100.yaml", "--details")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Which is cheaper for a 72B chat service" in done.stdout
    for said in (
        "at rate_rps=0.25: Poisson",
        "Cases to run: 50 (2 fleets at 5 points)\n",
        "max_model_len",
        "workstation-2xa100-nvlink",
        "memory_bytes_per_s",
        "assumed (!)",
    ):
        assert said in done.stdout
    assert "…" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_check_states_that_precision_may_add_cases(inside: Inside, root: Path) -> None:
    precise = "precision={metric: ttft_s_p95, relative: 0.1, max_replications: 20}"
    done = inside("check", root / "scenarios" / "4x4090-vs-2xa100.yaml", "--set", precise, "--details")
    assert "until ttft_s_p95 is known within 10 %, at most 20 replications of each" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_a_shipped_scenario_is_found_from_anywhere(inside: Inside) -> None:
    for name in ("scenarios/4x4090-vs-2xa100.yaml", "4x4090-vs-2xa100"):
        assert inside("check", name, "--set", "sweep=null").returncode == 0


@pytest.mark.slow
def test_a_fleet_that_does_not_fit_is_reported(inside: Inside) -> None:
    only = "fleets=[{name: small, pools: [{gpu: rtx-4090}]}]"
    done = inside("check", "4x4090-vs-2xa100", "--set", "quantization=none", "--set", only, "--set", "sweep=null")
    assert done.returncode == 2
    assert "small cannot run: needs 145" in done.stdout
    assert "small: needs 145" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "check"])
def test_bad_input_is_one_line_each_and_nothing_is_written(gpufleet: Command, tmp_path: Path, command: str) -> None:
    (tmp_path / "s.yaml").write_text(REFEREE.replace("1.0", "-1").replace("fixed", "fixt", 1))
    done = gpufleet(command, "s.yaml", "--set", "seed=-1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "s.yaml:3: workload.arrivals.rate_rps: must be above 0, not -1",
        "s.yaml:5: workload.lengths.prompt.distribution: unknown distribution 'fixt'; did you mean fixed?",
        "--set seed: must be 0 or more, not -1",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["check", "gone.yaml"], "gone.yaml: cannot be read: no such file or directory"),
        (["check", "."], ".: cannot be read: is a directory"),
        (["list", "gpuz"], "unknown kind 'gpuz'; did you mean gpus?"),
        (["show", "gpu", "rtx4900"], "unknown gpu 'rtx4900'; did you mean rtx-4090?"),
        (["show", "price", "rtx-4091"], "unknown price list 'rtx-4091'; did you mean rtx-4090"),
        (["check", "4x4090-vs-2xa100", "--seed", "-1"], "--seed: must be 0 or more, not -1"),
        (["check", "4x4090-vs-2xa100", "--replications", "0"], "--replications: must be above 0, not 0"),
    ],
)
def test_wrong_arguments(inside: Inside, args: list[str], line: str) -> None:
    done = inside(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert [said[: len(line)] for said in done.stderr.splitlines()] == [line]


@pytest.mark.slow
def test_an_unknown_model_is_read_from_the_hub_cache(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    done = inside("show", "model", "acme/Tiny-1B")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0].startswith("unknown model 'acme/Tiny-1B'")
    assert "gpufleet init NAME --from config.json" in done.stderr.splitlines()[1]
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    stored = tmp_path / "models--acme--Tiny-1B" / "snapshots" / "abc" / "config.json"
    stored.parent.mkdir(parents=True)
    stored.write_text(json.dumps(sizes | {"model_type": "llama", "vocab_size": 512, "max_position_embeddings": 1024}))
    for name in ("acme/Tiny-1B", "Tiny-1B"):
        done = inside("show", "model", name, "--format", "json")
        assert done.stderr == f"not in the catalogue: read from {stored}; in a scenario: model: {stored}\n"
        item = json.loads(done.stdout)["item"]
        assert (item["id"], item["hidden"], item["dimensions"]["where"]) == (name, 64, str(stored))
    assert inside("show", "model", "../Tiny-1B").returncode == 2


def test_an_unknown_option_is_wrong_input(inside: Inside) -> None:
    done = inside("check", "4x4090-vs-2xa100", "--sett", "seed=1")
    assert done.returncode == 2
    assert "--sett" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_folder_of_somebody_else_is_not_replaced(gpufleet: Command, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(REFEREE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    (tmp_path / "file").write_text("")
    for out, reason in [
        ("mine", "holds files that are not a gpufleet run (no manifest.json of ours); name another folder"),
        ("file", "is not a folder"),
        ("file/below", "cannot be written: not a directory"),
        ("/proc/gpufleet", "cannot be written: "),
    ]:
        done = gpufleet("run", "s.yaml", "--out", out)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"--out {out}: {reason}")
        assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "mine", "s.yaml", "thesis.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_everything_in_the_catalogue_is_listed_and_shown(inside: Inside, kind: str) -> None:
    done = inside("list", kind)
    assert (done.returncode, done.stderr) == (0, "")
    ids = load_catalog().ids(kind)
    first_words = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert set(ids) <= set(first_words)
    shown = inside("show", kind.removesuffix("s"), ids[0])
    assert (shown.returncode, shown.stderr) == (0, "")
    assert ids[0] in shown.stdout
    assert f"{kind} {len(ids)}" in [" ".join(line.split()) for line in inside("list").stdout.splitlines()]


def test_values_are_shown_with_their_sources(inside: Inside) -> None:
    done = inside("show", "gpu", "RTX 4090")
    lines = [line.split() for line in done.stdout.splitlines()]
    [place] = [place for place, words in enumerate(lines) if words[:1] == ["memory_bytes_per_s"]]
    assert lines[place][1:] == ["1,008,000,000,000", "B/s"]
    assert lines[place + 1][:2] == ["datasheet,", "ada_wp:"]


@pytest.mark.slow
def test_init_writes_a_scenario_that_passes_check(inside: Inside, tmp_path: Path) -> None:
    assert inside("init", "my-service").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpufleet.schema.json", "my-service.yaml"]
    scenario = load(tmp_path / "my-service.yaml", catalog=load_catalog())
    assert scenario.name == "my-service"
    assert inside("check", "my-service.yaml").returncode == 0
    again = inside("init", "my-service")
    assert (again.returncode, again.stderr) == (2, "my-service.yaml: exists; --force overwrites it\n")
    assert inside("init", "my-service", "--force").returncode == 0
    schema = json.loads((tmp_path / "gpufleet.schema.json").read_text())
    assert {"workload", "fleets", "sweep", "base", "schema_version"} <= set(schema["properties"])
    assert schema["properties"]["requests_cost"]["deprecated"]
    assert schema["$defs"]["Operations"]["properties"]["tax"]["deprecated"]
    assert "rental_unused" in schema["$defs"]["Annuity"]["properties"]["inflation"]["propertyNames"]["enum"]
    assert schema["properties"]["horizon_s"]["description"].startswith("End of arrivals")


@pytest.mark.slow
def test_migrate_reports_every_error_and_then_writes_nothing(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text("requests_cost: true  # billed\n")
    (tmp_path / "later.yaml").write_text("schema_version: 9\n")
    done = inside("migrate", "old.yaml", "later.yaml", "none.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    later, missing = done.stderr.splitlines()
    assert later.startswith("later.yaml:1: schema_version: 9 is later than 1, ")
    assert missing.startswith("none.yaml: ")
    assert (tmp_path / "old.yaml").read_text() == "requests_cost: true  # billed\n"
    done = inside("migrate", "old.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "old.yaml").read_text() == "schema_version: 1\ncost_per_request: true  # billed\n"
    assert inside("migrate", "old.yaml").stdout == "old.yaml: up to date\n"
    assert [path.name for path in tmp_path.glob("*schema*")] == []


@pytest.mark.slow
def test_what_init_has_in_comments_for_other_commands_is_valid(inside: Inside, tmp_path: Path) -> None:
    assert inside("init", "my-service").returncode == 0
    lines, inside_one = [], False
    for line in (tmp_path / "my-service.yaml").read_text().splitlines():
        begins = line.startswith(("# plan: {", "# size: {", "# sensitivity: {", "# breakeven: {"))
        inside_one = begins or (inside_one and line.startswith("#   "))
        lines.append(line[2:] if inside_one else line)
    (tmp_path / "more.yaml").write_text("\n".join(lines))
    scenario = load(tmp_path / "more.yaml", catalog=load_catalog())
    assert None not in (scenario.plan, scenario.size, scenario.sensitivity, scenario.breakeven)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["run", "--foo"], "No such option: --foo"),
        (["show", "gpu"], "Missing argument 'name'."),
        (["run", "s.yaml", "--workers", "0"], "Invalid value for '--workers'"),
        (["fly"], "No such command 'fly'."),
    ],
)
def test_usage_error_is_one_line(gpufleet, args: list[str], told: str) -> None:
    done = gpufleet(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gpufleet: {told}")


def test_a_call_without_arguments_shows_help(gpufleet) -> None:
    done = gpufleet()
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: ")


@pytest.mark.slow
def test_no_color_is_accepted_anywhere(gpufleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    for args in (("list", "links", "--no-color"), ("--no-color", "list", "links")):
        done = gpufleet(*args)
        assert (done.returncode, done.stderr) == (0, "")
        assert os.environ["NO_COLOR"] == "1"
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", done.stdout)


@pytest.mark.slow
def test_the_next_command_is_named_to_people_only(gpufleet, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "scenarios" / "4x4090-vs-2xa100.yaml"
    assert "next:" not in gpufleet("check", path).stdout
    monkeypatch.setattr("sim.cli.scenario_files.shown_to_people", lambda: True)
    assert gpufleet("check", path).stdout.endswith(f"next: gpufleet run {path} (simulates it)\n")


def test_what_comes_next(root: Path) -> None:
    scenario = load(root / "scenarios" / "breakeven-4x4090-vs-2xa100.yaml", catalog=load_catalog())
    path, out = Path("s.yaml"), Path("out")
    found = {name: next_command(name, path, out, scenario) for name in ("run", "capacity", "sensitivity", "breakeven")}
    assert [line.split()[2] for line in found.values()] == ["capacity", "sensitivity", "breakeven", "export"]


def test_the_version_states_whether_the_program_is_compiled(gpufleet: Command) -> None:
    done = gpufleet("--version")
    assert done.returncode == 0
    assert re.fullmatch(r"gpufleet \S+ \(pure\)\n", done.stdout)


@pytest.mark.slow
def test_help_check_and_tables_import_only_what_they_need() -> None:
    shipped = Path(__file__).parents[2] / "scenarios" / "4x4090-vs-2xa100.yaml"
    script = (
        "import contextlib, io, sys\n"
        "from sim.cli import main\n"
        "def imported(*words):\n"
        "    sys.argv = ['gpufleet', *words]\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        main()\n"
        "    return set(sys.modules)\n"
        "print(*sorted(imported('--help')))\n"
        f"print(*sorted(imported('check', {str(shipped)!r})))\n"
        "import sim.report.run.report, sim.report.run.terminal\n"
        "print(*sorted(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    of_help, of_check, of_tables = (set(line.split()) for line in done.stdout.splitlines())
    assert not of_help & {"numpy", "pydantic", "rich", "yaml", "pandas", "sim.scenario.schema"}
    assert not of_tables & {"vl_convert", "jinja2"}
    assert not of_check & {"pyarrow", "pandas", "scipy", "simpy", "joblib", "numpy.random"}
    rooms = {"sim.fleet", "sim.case", "sim.jobs", "sim.training", "sim.claims", "sim.report.run"}
    assert not of_check & {*rooms, "sim.study.points", "sim.study.breakeven", "sim.answers.folder"}
