"""Calibration to a server's metrics, fitted on the first half of a recorded run and tested on the second.

    PYTHONPATH=. python benchmarks/metrics.py replay_<gpu>_<model>.csv ... --gpu rtx-pro-6000-server

A file has a line with the engine's settings, then a line per request (arrival_s, queued_s, scheduled_s, prompt_tokens,
output_tokens, ttft_ms, tpot_ms, e2e_ms). Until half of the requests have ended, a /metrics page of a vLLM server is
written every second; `calibrate` reads the pages. The whole run is then replayed, and the requests that ended later
are compared.
"""

import argparse
import csv
import re
import tempfile
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import numpy as np
from scipy.optimize import nnls

from sim.benchdata import BenchRow
from sim.benchdata.served import fragment, read_rows
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fidelity.calibration import calibrate, factors
from sim.fidelity.fit import adjusted
from sim.fidelity.prediction import prepared
from sim.fleet.fleet import RunningFleet
from sim.steptime.calibration import Calibration

LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
ITL_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
E2E_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0)
"""Upper ends of the buckets of vLLM 0.11 [s]."""
EVEN = 3.0
"""Weight of differences between adjacent seconds, relative to errors in a request's tokens."""
Request = dict[str, float]


def requests_in(path: Path) -> tuple[str, list[Request]]:
    """Return the settings and the requests by arrival, with queue, first-token and end times on one clock [s]."""
    with path.open(encoding="utf-8", newline="") as file:
        head = file.readline()
        rows = [
            {name: float(value) for name, value in row.items() if name != "request_id"} for row in csv.DictReader(file)
        ]
    for row in rows:
        row["first_s"] = row["queued_s"] + row["ttft_ms"] / 1e3
        row["end_s"] = row["queued_s"] + row["e2e_ms"] / 1e3
    return head, sorted(rows, key=lambda row: row["arrival_s"])


def tokens_by_second(requests: Sequence[Request]) -> list[tuple[int, float, float]]:
    """Return (second, time per token, tokens) of each request and each second in which it produced tokens.

    Running requests produce tokens at a common rate. The rate per second is the least-squares solution for the number
    of tokens that each request produced from its first to its last token, with a penalty on differences between
    seconds.
    """
    seconds = np.arange(max(one["end_s"] for one in requests) + 1.0)
    first_s, end_s, made = (
        np.array([one[name] for one in requests], float) for name in ("first_s", "end_s", "output_tokens")
    )
    ran_s = np.maximum(0.0, np.minimum(end_s[:, None], seconds + 1.0) - np.maximum(first_s[:, None], seconds))
    alike = EVEN * np.diff(np.eye(len(seconds)), axis=0)
    tokens = ran_s * nnls(np.vstack([ran_s, alike]), np.concatenate([made - 1.0, np.zeros(len(alike))]))[0]
    tokens *= np.divide(made - 1.0, tokens.sum(axis=1), out=np.zeros_like(made), where=made > 1)[:, None]
    return [
        (second, float(ran_s[which, second] / tokens[which, second]), float(tokens[which, second]))
        for which, second in np.argwhere(tokens > 0).tolist()
    ]


def page(requests: Sequence[Request], model: str, at_s: float, tokens: Sequence[tuple[int, float, float]]) -> str:
    """Return /metrics at the whole second *at_s*; *tokens* are those of the requests by second."""
    begun = [one for one in requests if one["first_s"] <= at_s]
    done = [one for one in begun if one["end_s"] <= at_s]
    lines = _histogram("request_prompt_tokens", [(one["prompt_tokens"], 1) for one in done], LENGTHS, model)
    lines += _histogram("request_generation_tokens", [(one["output_tokens"], 1) for one in done], LENGTHS, model)
    lines += _histogram("time_to_first_token_seconds", [(one["ttft_ms"] / 1e3, 1) for one in begun], TTFT_S, model)
    lines += _histogram("inter_token_latency_seconds", [one[1:] for one in tokens if one[0] < at_s], ITL_S, model)
    lines += _histogram("e2e_request_latency_seconds", [(one["e2e_ms"] / 1e3, 1) for one in done], E2E_S, model)
    waiting = sum(1 for one in requests if one["queued_s"] <= at_s < one["scheduled_s"])
    running = sum(1 for one in requests if one["scheduled_s"] <= at_s < one["end_s"])
    label = f'{{engine="0",model_name="{model}"}}'
    lines += [f"vllm:num_requests_running{label} {running}", f"vllm:num_requests_waiting{label} {waiting}"]
    lines.append(f"vllm:prompt_tokens_total{label} {sum(one['prompt_tokens'] for one in begun)}")
    return "\n".join(lines) + "\n"


def _histogram(name: str, values: list[tuple[float, float]], ends: Sequence[float], model: str) -> list[str]:
    counts = [0.0] * (len(ends) + 1)
    for value, number in values:
        counts[bisect_left(ends, value)] += number
    label = f'engine="0",model_name="{model}"'
    upto, lines = 0.0, [f"# TYPE vllm:{name} histogram"]
    for end, count in zip([*map(str, ends), "+Inf"], counts, strict=True):
        upto += count
        lines.append(f'vllm:{name}_bucket{{{label},le="{end}"}} {upto}')
    total = sum(value * number for value, number in values)
    return [*lines, f"vllm:{name}_count{{{label}}} {upto}", f"vllm:{name}_sum{{{label}}} {total}"]


def second_half(row: BenchRow, catalog: Catalog, fitted: Calibration | None, late: set[int]) -> tuple[float, float]:
    """Return mean TPOT and TTFT [ms] of the simulated requests with the indices *late*, by arrival."""
    with prepared(row, catalog) as ready:
        plan = adjusted(fitted)(ready.plan) if fitted else ready.plan
        log = RunningFleet(plan).run()
    ordered = sorted(log.requests, key=lambda one: one.arrived_s)
    found = [one for number, one in enumerate(ordered) if number in late]
    tpots = [(one.finished_s - one.first_token_s) / (one.output_tokens - 1) for one in found if one.output_tokens > 1]
    return 1e3 * fmean(tpots), 1e3 * fmean(one.first_token_s - one.arrived_s for one in found)


def judge(path: Path, gpu: str, catalog: Catalog) -> None:
    """Calibrate with the first half of a recorded run, and print the errors of its second half."""
    head, requests = requests_in(path)
    end_s = median(one["end_s"] for one in requests)
    said = dict(re.findall(r"(\w+)=([^;\s]+)", head))
    ranks = int(said["dp"])
    model = path.stem.rpartition("_")[2]
    about = {
        "n_gpus": str(int(said["tp"]) * ranks), "tp": said["tp"], "dp": said["dp"], "precision": "bf16",
        "ep": str(ranks if said["expert_parallel"] == "True" else 1), "engine_version": head.split()[2].rstrip(";"),
        "max_num_seqs": said["max_num_seqs"], "max_num_batched_tokens": said["max_num_batched_tokens"],
        "interconnect": "PCIe5 x16", "measured_at": "engine",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        pages = [Path(place) / f"{second:04}.prom" for second in range(int(end_s) + 1)]
        tokens = tokens_by_second(requests)
        for second, written in enumerate(pages):
            written.write_text(page(requests, model, float(second), tokens), encoding="utf-8")
        rows, [seen] = read_rows(pages, gpu, [f"{name}={value}" for name, value in about.items()], [end_s])
    print(f"{path.name}: {end_s:.0f} s of metrics: {fragment(seen)['workload']}")
    for row in rows:
        print(f"  {row.id}: {row.concurrency or row.avg_batch:.0f} in flight, measured {dict(row.measured)}")
    fitted = calibrate(rows, gpu, catalog, 1).calibration
    print("  factors", {name: one.factor for name, one in factors(fitted) if one.determined}, fitted.errors)
    late = {number for number, one in enumerate(requests) if one["end_s"] > end_s}
    replayed = replace(
        rows[0], load="trace", replay=str(path), concurrency=None, counted=None, prompt_cv=None, output_cv=None
    )
    true = [
        fmean(one[name] for number, one in enumerate(requests) if number in late) for name in ("tpot_ms", "ttft_ms")
    ]
    for name, calibration in (("as data/ has it", None), ("calibrated", fitted)):
        found = second_half(replayed, catalog, calibration, late)
        tpot, ttft = (100 * (one / real - 1) for one, real in zip(found, true, strict=True))
        print(f"  second half, {name}: TPOT {tpot:+.1f} %, TTFT {ttft:+.1f} %")


def main() -> None:
    """Process each file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("replays", type=Path, nargs="+")
    parser.add_argument("--gpu", required=True)
    given = parser.parse_args()
    catalog = load_catalog()
    for path in given.replays:
        judge(path, catalog.gpu(given.gpu).id, catalog)


if __name__ == "__main__":
    main()
