"""The README does what it says: every block of commands runs, and every file that it names is there."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
DESIGN = (ROOT / "docs" / "design.md").read_text()

NOT_HERE = ("git clone", "cd gpufleet", "make test")
"""Lines that a test does not run: it stands in the clone already, and it is part of the tests."""


def blocks(text: str) -> list[str]:
    """The ```sh blocks of *text*."""
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def runnable(block: str) -> str:
    return "".join(line for line in block.splitlines(keepends=True) if not line.startswith(NOT_HERE))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the working tree with an environment as after a first `make`."""
    copy = tmp_path / "clone"
    left_out = shutil.ignore_patterns(".*", "outputs", "__pycache__", "dist")
    shutil.copytree(ROOT, copy, ignore=left_out)
    programs = copy / ".venv" / "bin"
    programs.mkdir(parents=True)
    command = programs / "gpufleet"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{copy}" exec "{sys.executable}" -m sim "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    (programs / "activate").write_text(f'PATH="{programs}:$PATH"\n')
    for stamp in (".stamp-venv", ".stamp-run"):
        (copy / ".venv" / stamp).touch()
    return copy


def test_frames_of_the_demo(clone: Path) -> None:
    """The README's Python, on a short run of the demo."""
    (snippet,) = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    short = ["--set", "horizon_s=60", "--set", "warmup_s=0", "--replications", "1", "--no-report", "--quiet"]
    out = ["--out", "outputs/4x4090-vs-2xa100"]
    demo = [sys.executable, "-m", "sim", "run", "scenarios/4x4090-vs-2xa100.yaml", *out, *short]
    subprocess.run(demo, cwd=clone, check=True, env=os.environ | {"PYTHONPATH": str(clone)})
    printed = subprocess.run([sys.executable, "-c", snippet], cwd=clone, capture_output=True, text=True, check=True)
    assert "2x A100 80GB" in printed.stdout


@pytest.mark.parametrize("block", [pytest.param(b, id=b.splitlines()[0]) for b in blocks(README)])
def test_every_command_runs(clone: Path, block: str) -> None:
    path = f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-e"],
        input=runnable(block),
        cwd=clone,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", [README, DESIGN], ids=["README.md", "docs/design.md"])
def test_every_named_file_is_there(text: str) -> None:
    named = re.findall(r"`((?:sim|tests|data|scenarios|docs|benchmarks)/[\w./-]*)`|\]\(((?!http)[\w./-]+)\)", text)
    missing = [path for path in {code or link for code, link in named} if not (ROOT / path).exists()]
    assert missing == []


def test_every_dependency_has_its_line(root: Path) -> None:
    project = (root / "pyproject.toml").read_text()
    declared = re.findall(r'^    "([\w-]+)>=', project, flags=re.MULTILINE)
    assert [name for name in declared if f"| {name} |" not in README] == []
