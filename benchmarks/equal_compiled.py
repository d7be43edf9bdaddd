"""Comparison of compiled modules with their sources: tables byte for byte, CPU time and peak memory.

    python benchmarks/equal_compiled.py --azure AzureLLMInferenceTrace_conv.csv [--only w1,w2] [--repeat 3] [--tests]

The tree is copied and compiled there (`hatch_build.py`; --built names a copy to use again). Every shipped scenario,
with one replication, and the benches w1, w1-a100, comparison, w2, w512 and w2000 run in both modes in turn, and all
their tables must be equal byte for byte. --tests runs the tests of engines, routing and fleets, the referee's cases and
registered policies on the compiled modules, too. The exit status is 1 where anything differs or fails.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from speed import HERE, MIB_PER_KIB, run

ROOT = HERE.parent
TABLES = ("*.csv", "*.parquet")
SHORTER = {
    "autoscale-day": ("horizon_s=21600",),
    "rent-by-day": ("horizon_s=21600",),
    "comparison": ("workload.arrivals.num_requests=500",),
}
"""Case -> options that shorten its load: it finishes in seconds, with the same kinds of events."""
TESTS = (
    *("tests/engine", "tests/referee", "tests/routing", "tests/fleet"),
    *("tests/test_registry.py", "tests/test_records.py"),
)
LOADED = """
import importlib, sys
for name in sys.argv[1:]:
    print(name, importlib.import_module(name).__file__.endswith(".py"))
"""


def copied(folder: Path) -> Path:
    """Copy the tracked and new files of this tree into *folder* and compile it."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in files:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    started_s = time.perf_counter()
    subprocess.run([sys.executable, "hatch_build.py"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    print(f"compiled in {time.perf_counter() - started_s:.0f} s")
    return folder


def environment(pure: bool) -> dict[str, str]:
    """Return the environment of a run of the sources, or of the compiled modules."""
    own = {"GPUFLEET_PURE": str(int(pure)), "PYTHONPATH": ".", "COLUMNS": "80"}
    return {name: value for name, value in os.environ.items() if not name.startswith("GPUFLEET_")} | own


def check_loaded(tree: Path) -> None:
    """Exit unless every compiled module is loaded as such, and as source with GPUFLEET_PURE=1."""
    sys.path.insert(0, str(tree))
    from hatch_build import modules

    names = [".".join(file.with_suffix("").parts) for file in modules(tree)]
    for pure in (False, True):
        command = [sys.executable, "-c", LOADED, *names]
        said = subprocess.run(command, cwd=tree, env=environment(pure), check=True, capture_output=True, text=True)
        wrong = [line for line in said.stdout.splitlines() if line.split()[1] != str(pure)]
        if wrong or len(said.stdout.splitlines()) != len(names):
            sys.exit(f"GPUFLEET_PURE={int(pure)}: " + ", ".join(wrong))
    print(f"{len(names)} modules are loaded compiled, or as sources with GPUFLEET_PURE=1")


def cases(azure: Path | None) -> dict[str, tuple[str, ...]]:
    """Return the runs to compare: name -> arguments."""

    def replicas(count: int) -> tuple[str, ...]:
        sets = (f"workload.arrivals.rate_rps={18 * count}", f"fleets.replicas.pools.0.replicas={count}")
        return run("w2.yaml", *sets)

    found = {}
    if azure is not None:
        trace = f"workload.trace.path={azure.resolve()}"
        found |= {"w1": run("w1.yaml", trace), "w1-a100": run("w1-a100.yaml", trace, report=True)}
    for file in sorted((ROOT / "scenarios").glob("*.yaml")):
        command = "size" if file.stem.startswith("size-") else "run"
        found[file.stem] = (command, str(file), "--quiet", "--no-report", "--replications", "1", "--workers", "1")
    found["comparison"] = (*run("comparison.yaml", report=True), "--workers", "1")
    found |= {"w2": run("w2.yaml"), "w512": replicas(512), "w2000": replicas(2000)}
    for name, sets in SHORTER.items():
        found[name] += tuple(word for assignment in sets for word in ("--set", assignment))
    return found


def measured(tree: Path, arguments: tuple[str, ...], pure: bool, out: Path) -> tuple[float, float]:
    """Run *arguments* in *tree* into the folder *out*. Return CPU time [s] and peak memory [MiB]."""
    with tempfile.TemporaryFile() as noise:
        command = [sys.executable, "-m", "sim", *arguments, "--out", str(out)]
        process = subprocess.Popen(command, cwd=tree, env=environment(pure), stdout=noise, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 3):  # 3: a question that no fleet answers
            noise.seek(0)
            sys.exit(f"gpufleet {' '.join(arguments)} failed:\n{noise.read().decode()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * MIB_PER_KIB


def differing(one: Path, other: Path) -> set[str]:
    """Return the names of the tables that differ between two folders of results."""
    here, there = (
        {file.name: file.read_bytes() for kind in TABLES for file in folder.glob(kind)} for folder in (one, other)
    )
    return {name for name in here | there if here.get(name) != there.get(name)} if here or there else {"no table"}


def main() -> None:
    """Compare what was asked for, print a line for each case, and exit with 1 where results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--azure", type=Path, help="AzureLLMInferenceTrace_conv.csv of Azure/AzurePublicDataset")
    parser.add_argument("--built", type=Path, help="a copy of the tree that is compiled already")
    parser.add_argument("--only", help="names of cases, separated by commas")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case and mode, in turn; medians count")
    parser.add_argument("--tests", action="store_true", help="run tests on the compiled modules, too")
    options = parser.parse_args()
    chosen = cases(options.azure)
    if options.only is not None:
        chosen = {name: chosen[name] for name in options.only.split(",") if name}
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        tree = options.built.resolve() if options.built else copied(folder / "tree")
        check_loaded(tree)
        print(f"{'case':<34}{'pure s':>8}{'compiled s':>12}{'ratio':>7}{'MiB':>7}{'MiB':>6}  files")
        for name, arguments in chosen.items():
            found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
            differ: set[str] = set()
            for _ in range(options.repeat):
                outs = {pure: folder / f"{name}-{pure}" for pure in (True, False)}
                for pure, out in outs.items():
                    shutil.rmtree(out, ignore_errors=True)
                    found[pure].append(measured(tree, arguments, pure, out))
                differ |= differing(outs[True], outs[False])
            (pure_s, pure_mib), (fast_s, fast_mib) = (
                [statistics.median(column) for column in zip(*found[pure], strict=True)] for pure in (True, False)
            )
            failed |= bool(differ)
            verdict = f"differ: {', '.join(sorted(differ))}" if differ else "equal"
            times = f"{pure_s:>8.2f}{fast_s:>12.2f}{fast_s / pure_s:>7.2f}"
            print(f"{name:<34}{times}{pure_mib:>7.0f}{fast_mib:>6.0f}  {verdict}", flush=True)
        if options.tests:
            command = [sys.executable, "-m", "pytest", "-q", "--basetemp", str(folder / "pytest"), *TESTS]
            failed |= subprocess.run(command, cwd=tree, env=environment(pure=False), check=False).returncode != 0
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
