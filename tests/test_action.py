"""The action of action.yml: its commands run as on a runner, with programs that record what they are called with."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

PROGRAM = """#!/bin/sh
printf '%s|' "$(basename "$0")" "$@" >> "$CALLS"; echo >> "$CALLS"
case "$(basename "$0") $*" in
  gpufleet*) echo "| fleet | cost |"; exit $DIFF_STATUS ;;
  *--jq*) [ -z "$KNOWN" ] || printf '%s\\n' $KNOWN; exit $GH_STATUS ;;
esac
"""


class Done(NamedTuple):
    status: int
    calls: list[str]
    summary: str
    stdout: str


Compare = Callable[..., Done]


@pytest.fixture
def compare(root: Path, tmp_path: Path) -> Compare:
    """Run the comparing step of the action, with other values of its environment as *given*."""
    for name in ("gpufleet", "gh"):
        (tmp_path / name).write_text(PROGRAM)
        (tmp_path / name).chmod(0o755)
    [step] = [one for one in yaml.safe_load((root / "action.yml").read_text())["runs"]["steps"] if one.get("id")]

    def run(**given: str) -> Done:
        paths = {name: str(tmp_path / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "CALLS")}
        stated = {
            "BEFORE": "a",
            "AFTER": "b c",
            "FAIL_IF": "",
            "COMMENT": "true",
            "TITLE": "Costs",
            "PULL_REQUEST": "7",
        }
        runner = {"RUNNER_TEMP": str(tmp_path), "GITHUB_REPOSITORY": "o/r", "GH_TOKEN": "t"}
        programs = {
            "DIFF_STATUS": "0",
            "GH_STATUS": "0",
            "KNOWN": "",
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        }
        assert set(stated) | {"GH_TOKEN"} == set(step["env"])
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(
            command, env=paths | stated | runner | programs | given, capture_output=True, text=True, check=False
        )
        summary = tmp_path / "GITHUB_STEP_SUMMARY"
        calls = (tmp_path / "CALLS").read_text().splitlines()
        return Done(done.returncode, calls, summary.read_text() if summary.exists() else "", done.stdout)

    return run


@pytest.mark.slow
def test_the_action_passes_each_condition_and_posts_the_table(compare: Compare, tmp_path: Path) -> None:
    done = compare(FAIL_IF="ttft_s_p99 > 2\n\n  gpus > +2\n", DIFF_STATUS="1")
    table = tmp_path / "gpufleet-diff.md"
    assert done.status == 1
    assert done.calls == [
        "gpufleet|diff|a|b c|--fail-if|ttft_s_p99 > 2|--fail-if|  gpus > +2|--format|markdown|",
        "gh|api|--paginate|--jq|.[] | select(.body | startswith($ENV.MARK)) | .id|repos/o/r/issues/7/comments|",
        f"gh|api|--silent|--method|POST|repos/o/r/issues/7/comments|--field|body=@{table}|",
    ]
    assert table.read_text() == done.summary == "<!-- gpufleet diff: Costs -->\n### Costs\n\n| fleet | cost |\n"
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == f"table={table}\n"


def test_the_action_rewrites_its_first_comment(compare: Compare) -> None:
    done = compare(KNOWN="31 32")
    assert done.status == 0
    assert done.calls[-1].startswith("gh|api|--silent|--method|PATCH|repos/o/r/issues/comments/31|")


@pytest.mark.parametrize("given", [{"PULL_REQUEST": ""}, {"COMMENT": "false"}, {"GH_STATUS": "4"}])
def test_without_a_comment_the_table_is_in_the_summary(compare: Compare, given: dict[str, str]) -> None:
    done = compare(**given)
    assert (done.status, done.summary.splitlines()[-1]) == (0, "| fleet | cost |")
    assert not any("POST" in call for call in done.calls)
    assert ("::warning::" in done.stdout) == ("GH_STATUS" in given)


def test_an_error_of_the_comparison_ends_the_action_without_a_table(compare: Compare) -> None:
    done = compare(DIFF_STATUS="2")
    assert (done.status, done.summary, len(done.calls)) == (2, "", 1)
