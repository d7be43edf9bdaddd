"""Comparison of autoscalers on a recorded day: `python benchmarks/autoscalers.py RATES.csv --model m-small`.

RATES.csv has the columns model, window_start_s and rate_rps, as derived from ServeGen's traces. The second day of the
model is scaled to a mean rate and drawn as Poisson arrivals; the first day is the forecast. Prints the table of
benchmarks/fleets.md: cost, attainment, replica-hours and reversals (a start within ten minutes of a stop, or a stop
within ten minutes of a start), next to constant fleets and a clairvoyant schedule.
"""

import argparse
import csv
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import sim

DAY_S, WINDOW_S, REVERSAL_S = 86400, 600, 600
MOST = 8
LEAD = {"cached": True, "weights_from": "network_store_streamed"}
POOL: dict[str, Any] = {"gpu": "l40s", "replicas": MOST, "max_model_len": 16384, "batching": {"policy": "vllm"}}
COST = {"acquisition": "rent", "quotes": {"l40s": 0.9}}
SLO = {"ttft_s": 10.0, "tpot_s": 0.1, "attainment": 0.95}
OUTSTANDING = "outstanding_per_replica"
SCALERS: dict[str, dict[str, Any]] = {
    "HPA, outstanding": {"policy": "hpa", "metric": OUTSTANDING, "target": 6},
    "HPA, KV cache": {"policy": "hpa", "metric": "kv_used", "target": 0.6},
    "Knative": {"policy": "kpa", "target": 8, "min_replicas": 1},
    "KEDA, queue": {"policy": "keda", "target": 1, "min_replicas": 1},
    "AIBrix APA": {"policy": "aibrix", "metric": OUTSTANDING, "target": 6},
    "Dynamo planner": {"policy": "dynamo", "kv_scale_up_threshold": 0.7, "kv_scale_down_threshold": 0.4},
    "headroom of the SLO, TTFT": {"policy": "slo", "ttft_s": 10, "metric_window_s": 600},
    "headroom of the SLO, TTFT and TPOT": {"policy": "slo", "ttft_s": 10, "tpot_s": 0.1, "metric_window_s": 600},
    "Holt-Winters": {"policy": "predictive", "method": "holt_winters", "target_rps": 0.045},
    "yesterday's curve": {"policy": "predictive", "method": "yesterday", "target_rps": 0.045},
}


def rates_of(path: Path, model: str, mean_rps: float) -> tuple[list[float], list[float]]:
    """Return the rates of the first and second day of *model* in ten-minute windows, scaled to a mean of *mean_rps*."""
    with path.open(encoding="utf-8") as file:
        rates = [float(row["rate_rps"]) for row in csv.DictReader(file) if row["model"] == model]
    days = DAY_S // WINDOW_S
    if len(rates) < 2 * days:
        raise SystemExit(f"{path}: {model} has {len(rates)} windows of ten minutes, two days are needed")
    factor = mean_rps / (sum(rates[days : 2 * days]) / days)
    return [factor * rate for rate in rates[:days]], [factor * rate for rate in rates[days : 2 * days]]


def write_trace(path: Path, rates: Sequence[float], seed: int) -> None:
    """Write Poisson arrivals at *rates* with lognormal lengths."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(np.array(rates) * WINDOW_S)
    arrived_s = np.sort(np.concatenate([(i + rng.random(n)) * WINDOW_S for i, n in enumerate(counts)]))
    prompts, outputs = (lengths(rng, len(arrived_s), *one) for one in ((800, 1.0, 6000), (2500, 0.7, 10000)))
    table = {"arrival_s": arrived_s, "prompt_tokens": prompts, "output_tokens": outputs}
    pd.DataFrame(table).to_csv(path, index=False)


def lengths(rng: np.random.Generator, count: int, mean: float, cv: float, most: int) -> Any:
    """Return lognormal lengths [tokens]."""
    sigma = np.sqrt(np.log1p(cv**2))
    return np.clip(np.rint(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)), 1, most).astype(int)


def simulated(trace: Path, pools: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Simulate each fleet. Return a row of the table for each."""
    fleets = [{"name": name, "pools": [pool], "cost": COST} for name, pool in pools.items()]
    scenario = {"name": "autoscalers", "model": "qwen3-32b", "quantization": "fp8", "horizon_s": DAY_S,
                "workload": {"trace": {"path": str(trace), "format": "csv"}}, "slo": SLO, "fleets": fleets}  # fmt: skip
    run = sim.run(scenario)
    usage, rows = run.usage, []
    for _, row in run.summary.iterrows():
        own = usage[(usage["fleet"] == row["fleet"]) & (usage["start_s"] < DAY_S)]
        rented = own[~own["state"].isin(["off", "provisioning", "repairing"])]
        hours = float((rented["end_s"] - rented["start_s"]).sum()) / 3600
        rows.append({"fleet": row["fleet"], "usd": 24 * row["cost_usd_per_h"], "slo": row["slo_attainment"],
                     "ttft": row["ttft_s_p99"], "hours": hours, "starts": starts(own),
                     "reversals": reversals(own)})  # fmt: skip
    return rows


def changes(own: pd.DataFrame) -> list[tuple[float, int]]:
    """Return the changes of the number of replicas as (time, +1 or -1), in order."""
    found = []
    for _, replica in own.sort_values("start_s").groupby("replica"):
        on = (~replica["state"].isin(["off", "draining"])).to_numpy()
        times = replica["start_s"].to_numpy()
        found += [(float(times[i]), 1 if on[i] else -1) for i in range(1, len(on)) if on[i] != on[i - 1]]
    return sorted(found)


def starts(own: pd.DataFrame) -> int:
    """Return the number of replica starts."""
    return sum(way > 0 for _, way in changes(own))


def reversals(own: pd.DataFrame) -> int:
    """Return the number of changes that reverse the previous one within ten minutes."""
    found = changes(own)
    return sum(a[1] != b[1] and b[0] - a[0] < REVERSAL_S for a, b in pairwise(found))


def by_windows(rates: Sequence[float], target_rps: float) -> dict[str, Any]:
    """Return a pool that follows *rates* window by window, with each replica ready when it is needed."""
    wanted = [max(1, ceil(rate / target_rps)) for rate in rates]
    times = {f"{i // 6:02}:{i % 6}0": n for i, n in enumerate(wanted)}
    return POOL | {"replicas": max(wanted), "schedule": {"replicas": times, "starting_s": 0}}


def clairvoyant(trace: Path, rates: Sequence[float], steps: int) -> dict[str, Any]:
    """Return the schedule with the fewest replicas, in proportion to the rate, that meets the SLO."""
    low, high, best = 0.03, 0.12, {}
    for _ in range(steps):
        target_rps = (low + high) / 2
        (row,) = simulated(trace, {"clairvoyant schedule": by_windows(rates, target_rps)})
        if row["slo"] >= SLO["attainment"]:
            low, best = target_rps, row
        else:
            high = target_rps
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rates", type=Path)
    parser.add_argument("--model", default="m-small")
    parser.add_argument("--mean-rps", type=float, default=0.12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="autoscalers by name")
    parser.add_argument("--steps", type=int, default=5, help="of the search for the clairvoyant schedule; 0: none")
    options = parser.parse_args()
    yesterday, today = rates_of(options.rates, options.model, options.mean_rps)
    pools: dict[str, dict[str, Any]] = {"always 6": POOL | {"replicas": 6}}
    for name, keys in SCALERS.items():
        more = {"yesterday_rps": yesterday} if keys["policy"] == "predictive" else {}
        pools[name] = POOL | {"autoscaling": {"max_replicas": MOST, **keys, **more}, "replicas": 2, "cold_start": LEAD}
    chosen = {name: pool for name, pool in pools.items() if options.only is None or name in options.only}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "day.csv"
        write_trace(trace, today, options.seed)
        rows = simulated(trace, chosen) if chosen else []
        if options.steps:
            rows.append(clairvoyant(trace, today, options.steps))
    print("| | USD per day | within the SLO [%] | TTFT p99 [s] | replica-hours | starts | reversals |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        figures = f"{row['usd']:.1f} | {100 * row['slo']:.1f} | {row['ttft']:.1f} | {row['hours']:.1f}"
        print(f"| {row['fleet']} | {figures} | {row['starts']} | {row['reversals']} |")


if __name__ == "__main__":
    main()
