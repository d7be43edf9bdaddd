"""Compiled modules and their sources write the same bytes. Skipped where nothing is compiled; after `make fast`:

    python -m pytest tests/test_compiled.py

`benchmarks/equal_compiled.py` compares all shipped scenarios, and large fleets.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_scenario import SMALL

from hatch_build import built

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not built(Path(__file__).parents[1]), reason="no compiled modules here: make fast"),
]
TIGHT = (
    "workload.arrivals.rate_rps=20",
    "fleets.one.pools.0.batching.num_gpu_blocks=60",
    "fleets.one.pools.0.replicas=3",
)
"""Little KV, so that requests wait and are preempted."""

POOLS = "[{gpu: rtx-4090, replicas: 1, batching: {policy: vllm}}]"
ROLES = SMALL.replace(
    POOLS,
    """
      - {name: prompts, role: prefill, gpu: rtx-4090, batching: {policy: vllm, async_scheduling: true}}
      - {name: answers, role: decode, gpu: rtx-4090, batching: {policy: vllm, async_scheduling: true}}
    kv_transfer: {link: ethernet-25g, overlap: layers}""",
)


def program(root: Path, *arguments: str, pure: bool) -> str:
    """Return the output of gpufleet on compiled modules, or on their sources."""
    own = {"GPUFLEET_PURE": str(int(pure)), "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "sim", *arguments]
    return subprocess.run(command, env=os.environ | own, check=True, capture_output=True, text=True).stdout


def test_the_version_states_which_modules_run(root: Path) -> None:
    assert [program(root, "--version", pure=pure).split()[-1] for pure in (True, False)] == ["(pure)", "(compiled)"]


@pytest.mark.parametrize(("text", "sets"), [(SMALL, ()), (SMALL, TIGHT), (ROLES, ())])
def test_both_write_the_same_tables(root: Path, tmp_path: Path, text: str, sets: tuple[str, ...]) -> None:
    (tmp_path / "s.yaml").write_text(text)
    options = ("--no-report", "--quiet", "--workers", "1", *(word for one in sets for word in ("--set", one)))
    for mode, pure in (("pure", True), ("compiled", False)):
        program(root, "run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / mode), *options, pure=pure)
    tables = sorted(one.name for one in (tmp_path / "pure").glob("*.csv"))
    assert {"requests.csv", "summary.csv", "usage.csv"} <= set(tables)
    for name in tables:
        assert (tmp_path / "compiled" / name).read_bytes() == (tmp_path / "pure" / name).read_bytes()
