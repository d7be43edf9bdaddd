"""`gpufleet check`: claims with all their mistakes, and an end within its time limit."""

import time
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from small_scenario import REFEREE
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.claims.files import claim_files
from sim.claims.verdict import check
from sim.cli import app, frame
from sim.cli.frame import watched
from sim.infile import STAGE

STATED = """\
claim:
  article: "002"
  statement: An H100 has three times the memory bandwidth of a card.
  figures:
    wide: {kind: catalogue, of: gpu h100-80gb-sxm, value: memory_bytes_per_s}
    narrow: {kind: catalogue, of: gpu %s, value: %s}
    share: {kind: arithmetic, formula: %s, of: [wide, narrow]}
  parts: [{says: three times, figure: share, claimed: 3, holds: {within: 0.2}}]
  reason: It is {share:.1f} times.
"""
SERVED = (
    REFEREE
    + """\
claim:
  article: "002"
  statement: It is fast.
  figures:
    column: {kind: run, fleet: a, metric: ttft_s_p59x}
    value: {kind: run, fleet: a, metric: ttft_s_p95, set: {workload.arrivals.rate_rps: -1}}
    key: {kind: run, fleet: a, metric: ttft_s_p95_ci95, set: {fleets.0.pols.0.replicas: 2}}
    load: {kind: capacity, fleet: a}
  parts: [{says: fast, figure: column, holds: {at_most: 3}}]
  reason: It is {column:.1f}.
"""
)


def checked(tmp_path: Path, text: str, *options: str) -> tuple[int, list[str], str]:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    done = CliRunner().invoke(app, ["check", str(file), *options])
    return done.exit_code, done.stderr.replace(f"{file}:", "").splitlines(), done.stdout


@pytest.mark.slow
def test_a_claim_without_fleets_is_checked(tmp_path: Path) -> None:
    code, told, shown = checked(tmp_path, STATED % ("rtx-4090", "memory_bytes_per_s", "ratio"))
    assert (code, told) == (0, [])
    assert shown.splitlines()[0].startswith("An H100 has three times")
    code, told, shown = checked(tmp_path, STATED % ("rtx-4090", "memory_bytes_per_s", "ratio"), "--format", "json")
    assert (code, told) == (0, [])
    assert '"figures"' in shown


def test_all_mistakes_of_a_claim_come_at_once(tmp_path: Path) -> None:
    code, told, shown = checked(tmp_path, STATED % ("rtx-4090", "memory_bytes_per_sec", "ratios"))
    assert (code, shown) == (2, "")
    assert told == [
        "6: claim.figures.narrow: gpu rtx-4090 has no 'memory_bytes_per_sec'; did you mean memory_bytes_per_s?",
        "7: claim.figures.share: there is no formula 'ratios'; did you mean ratio?",
    ]


@pytest.mark.slow
def test_figures_of_a_fleet_are_checked_without_a_simulation(tmp_path: Path) -> None:
    code, told, shown = checked(tmp_path, SERVED)
    assert (code, shown) == (2, "")
    assert [line.partition(":")[0] for line in told] == ["17", "18", "19", "20"]
    assert "summary.csv has no column 'ttft_s_p59x'" in told[0]
    assert "must be above 0" in told[1]
    assert "pols" in told[2]
    assert told[3].startswith("20: claim.figures.load: ")


@pytest.mark.slow
def test_shipped_claims_pass(tmp_path: Path) -> None:
    files = claim_files()
    for name in ("C02", "C04", "C08", "C16", "C27"):
        assert check(files[name], load_catalog()).parts


def busy_for_ever() -> None:
    with suppress(BaseException):  # as a finaliser swallows what is raised in it
        while True:
            sum(range(1000))
    while True:
        with suppress(Exception):
            sum(range(1000))


@pytest.mark.slow
def test_whatever_takes_too_long_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "FIRST_REPORT_S", 0.1)
    monkeypatch.setattr(frame, "REPORT_EVERY_S", 0.1)
    monkeypatch.setattr(frame, "RAISED_AGAIN_S", 0.1)
    begun = time.monotonic()
    STAGE.set("reading big.csv")
    with pytest.raises(typer.Exit) as ended, watched(0.35):
        busy_for_ever()
    assert ended.value.exit_code == 2
    assert 0.3 < time.monotonic() - begun < 5
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "0 s: reading big.csv"
    assert told[-1] == ("not finished after 0.35 s, reading big.csv: make the scenario smaller, or raise --time-limit")


def test_a_quick_command_prints_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with watched(60.0):
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
# The limit may pass in Hypothesis's callback of the garbage collector, which no exception leaves: it is raised again.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_large_sweep_ends_within_its_time_limit(tmp_path: Path) -> None:
    sizes = ", ".join(str(512 + i) for i in range(3000))
    text = SERVED.partition("claim:")[0] + f"sweep: {{fleets.0.pools.0.batching.max_num_batched_tokens: [{sizes}]}}\n"
    begun = time.monotonic()
    code, told, shown = checked(tmp_path, text, "--time-limit", "1")
    assert (code, shown) == (2, "")
    assert told[-1].startswith("not finished after 1 s, ")
    assert time.monotonic() - begun < 30
    code, told, shown = checked(tmp_path, SERVED.partition("claim:")[0] + "limits: {points: 100000000}\n")
    assert (code, shown) == (2, "")
    assert "limits.points: must be at most 1e+06" in told[-1]
