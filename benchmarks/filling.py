"""Calibration to metrics of simulated servers that fill up, fitted on the first half of a run and tested on the second.

    PYTHONPATH=. python benchmarks/filling.py [--seeds 4]

Servers with known factors answer Poisson arrivals from an empty start. Until half of the requests have ended, a
/metrics page is written every second, and `calibrate` reads the pages. The same requests are then simulated with the
fitted factors, and those that ended later are compared.
"""

import argparse
import csv
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from metrics import Request, page, second_half, tokens_by_second

from sim.benchdata import BenchRow
from sim.benchdata.served import read_rows
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fidelity.calibration import calibrate
from sim.fidelity.fit import adjusted, calibration_of
from sim.fidelity.prediction import prepared
from sim.fleet.fleet import RunningFleet
from sim.steptime.calibration import Factor

GPU, HOST, LINK = "rtx-pro-6000-server", "engines.vllm-0.14", "links.pcie5-x16"
SLOW = {"memory_efficiency": 0.9, f"{LINK}.latency": 1.75, f"{LINK}.time_per_byte": 1.75} | {
    f"{HOST}.{name}": 2.0 for name in ("step_overhead", "sequence_overhead", "request_overhead")
}
FAST = {f"{HOST}.step_overhead": 0.6, f"{HOST}.sequence_overhead": 0.7} | {
    "compute_efficiency": 1.1,
    "memory_efficiency": 1.05,
}
SERVERS: dict[str, dict[str, float]] = {"slow": SLOW, "as in data/": {}, "fast": FAST}
ONE = BenchRow(
    0, "one card", GPU, "Llama-3.1-8B", engine="vLLM", engine_version="0.19.0", precision="bf16", load="poisson", tp=1,
    isl=850, osl=650, prompt_cv=0.65, output_cv=0.15, rate_req_s=10.0, num_requests=300, max_num_seqs=128,
    max_num_batched_tokens=2048, interconnect="PCIe5 x16", measured_at="engine",
)  # fmt: skip
TWO = replace(ONE, id="two cards", model="Qwen3-30B-A3B-Instruct-2507", n_gpus=2, dp=2, ep=2)
LOADS = [
    replace(ONE, id="8B, queues"),
    replace(ONE, id="8B, keeps up", osl=400, output_cv=0.6, rate_req_s=6.0),
    replace(TWO, id="experts on two cards, queues"),
    replace(TWO, id="experts on two cards, lengths vary", osl=500, output_cv=0.5, num_requests=400),
]
TOLD = ("n_gpus", "tp", "dp", "ep", "precision", "engine_version", "max_num_seqs", "max_num_batched_tokens",
        "interconnect", "measured_at")  # fmt: skip
Errors = tuple[float, float]
"""Errors of the second half's mean TPOT and TTFT."""


def answered(row: BenchRow, factors: dict[str, float], seed: int, catalog: Catalog) -> list[Request]:
    """Return the requests of a server with *factors*, in the form of `metrics.page`."""
    truth = calibration_of(GPU, {name: Factor(factor=value) for name, value in factors.items()})
    with prepared(row, catalog) as ready:
        log = RunningFleet(replace(adjusted(truth)(ready.plan), seed=seed)).run()
    return [
        {
            "arrival_s": one.arrived_s, "queued_s": one.arrived_s, "scheduled_s": one.started_s,
            "first_s": one.first_token_s, "end_s": one.finished_s,
            "prompt_tokens": one.prompt_tokens, "output_tokens": one.output_tokens,
            "ttft_ms": 1e3 * (one.first_token_s - one.arrived_s), "e2e_ms": 1e3 * (one.finished_s - one.arrived_s),
            "tpot_ms": 1e3 * (one.finished_s - one.first_token_s) / max(1, one.output_tokens - 1),
        }
        for one in sorted(log.requests, key=lambda one: one.arrived_s)
    ]  # fmt: skip


def errors(row: BenchRow, requests: list[Request], catalog: Catalog) -> tuple[Errors, Errors]:
    """Return the errors before and after calibration."""
    seconds = int(median(one["end_s"] for one in requests))
    tokens = tokens_by_second(requests)
    with tempfile.TemporaryDirectory() as place:
        pages = [Path(place) / f"{second:04}.prom" for second in range(seconds + 1)]
        for second, written in enumerate(pages):
            written.write_text(page(requests, row.model, float(second), tokens), encoding="utf-8")
        about = [f"{name}={value}" for name in TOLD if (value := getattr(row, name)) is not None]
        rows, _ = read_rows(pages, GPU, about, [float(seconds)])
        fitted = calibrate(rows, GPU, catalog, 1).calibration
        trace = Path(place) / "requests.csv"
        with trace.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ("arrival_s", "prompt_tokens", "output_tokens"), extrasaction="ignore")
            writer.writeheader()
            writer.writerows(requests)
        late = {number for number, one in enumerate(requests) if one["end_s"] > seconds}
        replayed = replace(row, load="trace", replay=str(trace))
        found = [second_half(replayed, catalog, calibration, late) for calibration in (None, fitted)]
    true = [fmean(requests[number][name] for number in late) for name in ("tpot_ms", "ttft_ms")]
    before, after = ((tpot / true[0] - 1, ttft / true[1] - 1) for tpot, ttft in found)
    return before, after


def main() -> None:
    """Print a line for each load and server, and the means over all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    given = parser.parse_args()
    catalog = load_catalog()
    every: list[tuple[Errors, Errors]] = []
    for load in LOADS:
        for name, factors in SERVERS.items():
            own = [errors(load, answered(load, factors, seed, catalog), catalog) for seed in range(given.seeds)]
            every += own
            told = ", ".join(f"{b:+.1%} -> {a:+.1%} ({bt:+.0%} -> {at:+.0%})" for (b, bt), (a, at) in own)
            print(f"{load.id}; {name}: TPOT (TTFT) {told}", flush=True)
    for place, metric, aim in ((0, "TPOT", 0.05), (1, "TTFT", 0.12)):
        before, after = ([abs(one[side][place]) for one in every] for side in (0, 1))
        within = fmean(error <= aim for error in after)
        print(f"{metric}: mean |error| {fmean(before):.1%} -> {fmean(after):.1%}, {within:.0%} within {aim:.0%}")


if __name__ == "__main__":
    main()
