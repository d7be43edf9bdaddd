"""Wall time, CPU time and peak memory of whole commands, each in a process of its own.

    python benchmarks/speed.py --azure AzureLLMInferenceTrace_conv.csv [--only w1,w2] [--repeat 3]
    GPUFLEET_PURE=1 python benchmarks/speed.py ...    # the sources, where modules are compiled

Times depend on the machine, so they are printed next to their targets and not asserted.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB_PER_KIB = 1 / 1024
SCENARIOS = HERE.parent / "scenarios"
COMPARISON = "2 fleets x 10 loads x 5 replications"
WITHOUT_RESULTS = ("--help", "check")


@dataclass(frozen=True)
class Bench:
    """Command line with its targets."""

    name: str
    what: str
    arguments: tuple[str, ...]
    requests: int = 0
    target_s: float | None = None
    repeat: int | None = None
    """Number of runs, of which the fastest counts; None: the number on the command line."""


@dataclass(frozen=True)
class Timing:
    """Times and peak memory of one run."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def run(scenario: str, *sets: str, report: bool = False) -> tuple[str, ...]:
    """Return the arguments of `gpufleet run` for a scenario of this folder."""
    options = [word for assignment in sets for word in ("--set", assignment)]
    return ("run", str(HERE / scenario), "--quiet", *([] if report else ["--no-report"]), *options)


def replicas(count: int, requests: int) -> Bench:
    """Return the benchmark with *requests* on *count* replicas, each offered 18 requests per second."""
    sets = (
        f"workload.arrivals.rate_rps={18 * count}",
        f"workload.arrivals.num_requests={requests}",
        f"fleets.replicas.pools.0.replicas={count}",
    )
    return Bench(f"{count} replicas", "equal load per replica", run("w2.yaml", *sets), requests)


def outputs(tokens: int) -> Bench:
    """Return the benchmark with 20,000 requests of *tokens* output tokens that decode 64 at a time."""
    sets = (f"workload.lengths.output.value={tokens}",)
    return Bench(f"{tokens} tokens", "output length, constant batch", run("constant-batch.yaml", *sets), 20_000)


def comparison(name: str, requests: int, target_s: float | None, *options: str) -> Bench:
    """Return the benchmark with the demo's fleets at ten loads, with five times *requests* each and the report."""
    sets = (f"workload.arrivals.num_requests={requests}",)
    arguments = (*run("comparison.yaml", *sets, report=True), *options)
    return Bench(name, COMPARISON, arguments, 100 * requests, target_s, repeat=2)


def points(count: int, target_s: float | None) -> Bench:
    """Return the benchmark with *count* cases of 20 requests: the demo's fleets at many loads."""
    rates = [round(0.06 * (place + 1), 2) for place in range(count // 10)]
    sets = ("workload.arrivals.num_requests=20", f"sweep={{workload.arrivals.rate_rps: {rates}}}")
    arguments = run("comparison.yaml", *sets)
    return Bench(f"{count} points", "cases of 20 requests", arguments, 20 * count, target_s, repeat=2)


def question(command: str, scenario: str) -> Bench:
    """Return the benchmark of the question *command* about a shipped scenario, with one worker."""
    options = ("--quiet", "--no-report", "--workers", "1")
    return Bench(command, scenario, (command, str(SCENARIOS / f"{scenario}.yaml"), *options), repeat=1)


def benches(azure: Path | None) -> list[Bench]:
    """Return all benchmarks; those that need the trace are omitted without one."""
    million = "workload.arrivals.num_requests=1000000"
    demo = "4x4090-vs-2xa100"
    found = [
        Bench("help", "gpufleet --help", ("--help",), target_s=0.1),
        Bench("check", "check of the demo", ("check", str(SCENARIOS / f"{demo}.yaml")), target_s=0.45),
        Bench("w2", "8 replicas, 100,000 requests", run("w2.yaml"), 100_000, 1.5),
        Bench("w3", "8 replicas, 1,000,000 requests", run("w2.yaml", million), 1_000_000, 10.0, repeat=1),
        replicas(8, 400_000),
        replicas(512, 400_000),
        replicas(2000, 400_000),
        points(500, 10.0),
        outputs(50),
        outputs(500),
        outputs(2000),
        comparison("comparison", 2_000, 4.0),
        comparison("comparison on one worker", 2_000, None, "--workers", "1"),
        comparison("longer comparison", 10_000, None),
        comparison("longer comparison on one worker", 10_000, None, "--workers", "1"),
        question("capacity", demo),
        question("sensitivity", demo),
        question("size", "size-72b-chat"),
        question("breakeven", "breakeven-4x4090-vs-2xa100"),
        question("plan", "plan-grow-72b"),
        Bench("size of many", "some hundred fleets", ("size", str(HERE / "size-many.yaml"), "--quiet"), repeat=1),
    ]
    if azure is not None:
        trace = f"workload.trace.path={azure.resolve()}"
        found[2:2] = [
            Bench("w1", "Azure trace, one replica", run("w1.yaml", trace), 19_366, 1.2),
            Bench(
                "w1-a100", "the same, roofline, ledger, report", run("w1-a100.yaml", trace, report=True), 19_366, 2.0
            ),
        ]
    return found


def measure(arguments: tuple[str, ...]) -> Timing:
    """Run once, from process start to exit; the peak includes the workers that the process has waited for."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as noise:
        out = ("--out", f"{folder}/out") if arguments[0] not in WITHOUT_RESULTS else ()
        started_s = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "sim", *arguments, *out],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(HERE.parent)},
            stdout=noise,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started_s
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            noise.seek(0)
            sys.exit(f"gpufleet {' '.join(arguments)} failed:\n{noise.read().decode()}")
    return Timing(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * MIB_PER_KIB)


def main() -> None:
    """Run the selected benchmarks and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--azure", type=Path, help="AzureLLMInferenceTrace_conv.csv of Azure/AzurePublicDataset")
    parser.add_argument("--only", help="names from the first column, separated by commas")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, the fastest counts")
    options = parser.parse_args()
    if options.azure is None:
        print("without --azure: w1 and w1-a100 are left out\n", file=sys.stderr)
    known = {bench.name: bench for bench in benches(options.azure)}
    chosen = [known[name] for name in options.only.split(",")] if options.only else known.values()

    wall_s: dict[str, float] = {}
    print(f"{'bench':<32}{'what':<38}{'wall s':>8}{'cpu s':>8}{'MiB':>8}{'us/request':>12}{'target s':>10}")
    for bench in chosen:
        runs = [measure(bench.arguments) for _ in range(bench.repeat or options.repeat)]
        best = min(runs, key=lambda timing: timing.wall_s)
        wall_s[bench.name] = best.wall_s
        each = f"{best.wall_s / bench.requests * 1e6:.1f}" if bench.requests else ""
        target = "" if bench.target_s is None else f"{bench.target_s:g}"
        print(
            f"{bench.name:<32}{bench.what:<38}{best.wall_s:>8.2f}{best.cpu_s:>8.2f}{best.peak_mib:>8.0f}{each:>12}{target:>10}",
            flush=True,
        )
    for name in ("comparison", "longer comparison"):
        if {name, f"{name} on one worker"} <= wall_s.keys():
            workers = os.cpu_count() or 1
            share = wall_s[f"{name} on one worker"] / wall_s[name] / workers
            print(f"{name}: {workers} workers do {share:.2f} of {workers} times the work of one")
    for small, large in [
        ("8 replicas", "512 replicas"),
        ("8 replicas", "2000 replicas"),
        ("50 tokens", "2000 tokens"),
    ]:
        if small in wall_s and large in wall_s:
            print(f"{large} against {small}: {wall_s[large] / wall_s[small]:.2f} x the time per request")


if __name__ == "__main__":
    main()
