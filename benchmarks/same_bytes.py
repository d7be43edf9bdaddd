"""Comparison of all program output before and after a structural change.

    python benchmarks/same_bytes.py /tmp/before              # on the commit before: every shipped scenario
    python benchmarks/same_bytes.py /tmp/after /tmp/before   # on the commit after: the same, then the differences

Each command runs with one replication. The folder keeps the files that the commands wrote, and in same_bytes.json
their output and a digest of each file. Times, paths and the program's version are not compared. The exit status is 1
if anything differs. A run takes 15 minutes of CPU time; the source must not change meanwhile.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGES_BY_NATURE = re.compile(
    rb"\(([0-9a-f]{12})\)|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(?:\+00:00|Z)?|\"(?:wall_s|point)\": *[^,]+"
)
"""Pattern of text that differs between runs: digests of program and points, dates, wall times."""
QUESTIONS = ("size", "sensitivity", "breakeven", "plan")
"""Commands that run for each scenario with a section of that name."""
SHORT = ("--replications", "1")
"""Options that keep a run short."""


def commands(out: Path) -> Iterator[list[list[str]]]:
    """Yield groups of commands. Within a group, a command may read files of the command before it."""
    for scenario in sorted((ROOT / "scenarios").glob("*.yaml")):
        text, name = scenario.read_text(), scenario.stem
        folder = out / name
        run = [["check", str(scenario)], ["run", str(scenario), *SHORT, "--out", f"{folder}-run"]]
        if not re.search(r"^jobs?:", text, re.M):
            run += [
                ["export", f"{folder}-run", "--format", "xlsx", "--out", f"{folder}.xlsx"],
                ["export", f"{folder}-run", "--format", "focus", "--out", f"{folder}.csv"],
                ["price", f"{folder}-run", "--set", "site.electricity_usd_per_kwh=0.31", "--out", f"{folder}-price"],
                ["diff", f"{folder}-run", f"{folder}-price"],
                ["explain", str(scenario), "--request", "3"],
                ["run", str(scenario), *SHORT, "--lang", "zh", "--out", f"{folder}-run-zh"],
            ]
        yield run
        for question in QUESTIONS:
            if re.search(rf"^{question}:", text, re.M):
                yield [[question, str(scenario), *SHORT, "--out", f"{folder}-{question}"]]
    one = str(ROOT / "scenarios/4x4090-vs-2xa100.yaml")
    yield [["capacity", one, *SHORT, "--set", "horizon_s=300", "--out", str(out / "capacity")]]
    yield [["capacity", one, *SHORT, "--set", "horizon_s=300", "--lang", "zh", "--out", str(out / "capacity-zh")]]
    yield [["claims", "--out", str(out / "claims")]]
    yield [
        ["list", kind]
        for kind in ("gpus", "models", "quantizations", "kernels", "engines", "servers", "links", "prices")
    ]
    yield [["show", "gpu", "rtx-4090"], ["show", "model", "qwen2-72b-instruct"], ["--help"]]
    yield [["validate", str(ROOT / "tests/fidelity/sample.csv"), "--out", str(out / "validate")]]
    yield [["check", one, "--set", "fleets.0.pools.0.gpu=rtx-409", "--set", "workload.arrivals.rate=3"]]


def without_what_changes(content: bytes, out: Path) -> bytes:
    """Return *content* without dates, wall times and the paths of the checkout and of the results folder *out*."""
    for path, name in ((out, b"OUT"), (ROOT, b"ROOT")):
        content = content.replace(str(path).encode(), name)
    return CHANGES_BY_NATURE.sub(b"*", content)


def execute(group: list[list[str]], folder: Path, out: Path) -> dict[str, str]:
    """Run the commands of a *group*; return exit status and output of each, keyed by the command line."""
    said = {}
    for words in group:
        environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-m", "sim", *words], capture_output=True, cwd=folder, env=environment, check=False
        )
        printed = without_what_changes(done.stdout, out).decode()
        said["gpufleet " + " ".join(words).replace(str(out), "OUT").replace(str(ROOT), ".")] = (
            f"{done.returncode} {printed}"
        )
    return said


def digest(file: Path, out: Path) -> str:
    """Return a digest of the content of *file*; for a workbook, of the files inside."""
    if file.suffix == ".xlsx":
        with zipfile.ZipFile(file) as book:
            content = b"".join(book.read(name) for name in book.namelist())
    else:
        content = file.read_bytes()
    return hashlib.sha256(without_what_changes(content, out)).hexdigest()


def main(kept: Path, before: Path | None) -> int:
    """Run everything, keep digests in the folder *kept*, and compare them with those in *before*."""
    work = Path(tempfile.mkdtemp())
    out = work / "out"
    out.mkdir()
    said: dict[str, str] = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for found in pool.map(lambda group: execute(group, work, out), commands(out)):
            said |= found
    files: dict[str, list[str]] = {}
    for file in sorted(path for path in out.rglob("*") if path.is_file() and path.name != "SHA256SUMS"):
        # the name of a point's folder is a digest that contains the program's
        name = re.sub(r"\b[0-9a-f]{16,64}\b", "*", str(file.relative_to(out)))
        files.setdefault(name, []).append(digest(file, out))
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copytree(out, kept / "files", dirs_exist_ok=True)
    shutil.rmtree(work)
    result = {"said": said, "files": {name: sorted(digests) for name, digests in files.items()}}
    (kept / "same_bytes.json").write_text(json.dumps(result, indent=1, sort_keys=True))
    print(f"{len(said)} commands, {sum(map(len, files.values()))} files")
    if before is None:
        return 0
    old = json.loads((before / "same_bytes.json").read_text())
    different = [
        f"{part}: {name}"
        for part in ("said", "files")
        for name in sorted({*old[part], *result[part]})
        if old[part].get(name) != result[part].get(name)
    ]
    print("\n".join(different) or "nothing differs")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
