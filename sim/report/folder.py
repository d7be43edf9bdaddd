"""The folder of results: where they may go, how they came to be, and files that appear together."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sim.scenario.schema import Scenario

MANIFEST = "manifest.json"


def why_not(out: Path) -> str:
    """Why results may not go to *out*; empty if it is new, empty or an earlier run's, and can be written."""
    if out.is_dir():
        names = {child.name for child in out.iterdir()}
        manifest = out / "manifest.json"
        ours = manifest.is_file() and "gpufleet" in manifest.read_text(encoding="utf-8", errors="replace")
        if names and not ours and names != {"points"}:
            return "holds files that are no gpufleet run (no manifest.json of ours); name another folder"
    elif out.exists() or out.is_symlink():
        return "is no folder"
    above = out.absolute().parent
    while not above.exists() and above != above.parent:
        above = above.parent
    try:
        for folder in {above, out} if out.is_dir() else {above}:
            Path(tempfile.mkdtemp(prefix=".gpufleet-", dir=folder)).rmdir()
    except OSError as error:
        return f"cannot be written: {(error.strerror or str(error)).lower()}"
    return ""


def begin(out: Path, scenario: Scenario, command: Sequence[str]) -> dict[str, Any]:
    """Makes the folder *out* ours; the first entries of its manifest."""
    out.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {
        "program": "gpufleet",
        "version": program_version(),
        "scenario": scenario.name,
        "seed": scenario.seed,
        "command": list(command),
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    if not (out / MANIFEST).exists():
        write_manifest(out, told | {"status": "unfinished"})
    return told


@contextmanager
def written_together(out: Path, told: dict[str, Any]) -> Iterator[Path]:
    """A folder for the files of an answer. They take the place of an earlier answer's in *out* once all are written.

    Folders in *out* stay. The manifest gets *told* and, from its `started_at`, how long it took.
    """
    aside = Path(tempfile.mkdtemp(prefix=".answer-", dir=out))
    try:
        yield aside
        write_manifest(aside, told | finished(told))
        written = {path.name for path in aside.iterdir()}
        for path in out.iterdir():
            if path.is_file() and path.name not in written:
                path.unlink()
        for path in aside.iterdir():
            path.replace(out / path.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def finished(told: dict[str, Any]) -> dict[str, Any]:
    """The last entries of a manifest that begins with *told*."""
    wall_s = time.time() - datetime.fromisoformat(told["started_at"]).timestamp()
    return {"wall_s": round(wall_s, 3), "status": "finished"}


def write_manifest(folder: Path, told: dict[str, Any]) -> None:
    """manifest.json: how the files beside it came to be."""
    (folder / MANIFEST).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def program_version() -> str:
    """Of the installed package."""
    try:
        return version("gpufleet")
    except PackageNotFoundError:
        return "source tree"
