"""Errors on the validation runs of other simulators, next to the errors of these simulators.

    PYTHONPATH=. python benchmarks/published.py --blis error_records.csv --llmservingsim bench/examples [--out rows.csv]

`error_records.csv` is results_iter36/error_records.csv at commit 7f3b270 of github.com/inference-sim/sim-to-real-
accuracy-validation (38 experiments of vLLM 0.15.1; `actual` is measured), `bench/examples` the folder of that name of
github.com/casys-kaist/LLMServingSim (5daddb2): recorded requests of vLLM 0.19. The fit uses none of these runs, but
twelve other runs of BLIS's cluster (fit/blis_training.csv). --out writes the measured rows (for BLIS one per stage) in
the columns of `gpufleet validate`, followed by predictions.
"""

import argparse
import csv
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from sim.benchdata import BenchRow
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fidelity.prediction import Prediction, predict

METRICS = {"e2e_mean_ms": "e2e_mean", "ttft_mean_ms": "ttft_mean", "tpot_mean_ms": "itl_mean"}
"""Metrics of BLIS, keyed by our columns."""
OURS = "gpufleet"
THEIR_CLAIMS = {"e2e_mean_ms": 6.7, "ttft_mean_ms": 17.6, "tpot_mean_ms": 7.1}
"""Errors that BLIS states [%]: medians over 36 of the experiments.

Source: docs/blog/posts/how-blis-learns-latency.md of inference-sim, which also states E2E errors of 15.7 % on A100 and
13.3 % on L40S.
"""
GPUS = {"H100": "h100-sxm", "A100-80GB": "a100-sxm-80gb", "L40S": "l40s"}
WORKLOADS = {
    "general": (575, 248, (8.0, 20.0)),
    "general-lite": (575, 248, (2.5, 6.0)),
    "codegen": (592, 247, (5.0, 10.0)),
    "roleplay": (786, 251, (6.0,)),
    "reasoning": (1082, 1448, (4.0,)),
    "reasoning-lite": (1082, 1448, (1.0,)),
}
"""Workloads as (prompt, answer, request rates of the stages [1/s]).

Sources: profile.yaml and mean prompts of the runs in github.com/inference-sim/training (ed5c1d2). The lower rate of
general-lite follows from its means: 0.294 of the requests are in the first stage.
"""
STAGE_S, SEATS = 600.0, 128
MOST_REQUESTS = 1000
"""Largest number of requests per stage; the queue of an overloaded server keeps growing afterwards."""
Table = list[tuple[BenchRow, dict[str, dict[str, float]]]]
"""Measured runs with their errors, keyed by tool."""
Rows = list[tuple[BenchRow, Prediction]]


def blis_rows(records: list[dict[str, str]]) -> Iterator[tuple[str, BenchRow]]:
    """Yield (experiment, row) of every stage.

    Time per token follows from E2E and TTFT with the answer length of the profile; the file's own value divides by
    tokens counted again from the text.
    """
    stages: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    about = {}
    for record in records:
        stages[record["exp_id"], int(record["stage_index"])][record["metric_name"]] = float(record["actual"])
        about[record["exp_id"]] = record
    for (experiment, stage), measured in sorted(stages.items()):
        if stage < 0:
            continue
        run = about[experiment]
        prompt, answer, rates = WORKLOADS[run["workload"]]
        found = {ours: measured[theirs] for ours, theirs in METRICS.items()}
        found["tpot_mean_ms"] = (found["e2e_mean_ms"] - found["ttft_mean_ms"]) / (answer - 1)
        yield (
            experiment,
            BenchRow(
                line=0,
                id=f"{experiment}-{stage}",
                source_key="blis",
                gpu=GPUS[run["hardware"]],
                model=run["model"],
                precision=run["precision"].lower(),
                engine="vLLM",
                engine_version="0.15.1",
                n_gpus=int(float(run["tp"])),
                tp=int(float(run["tp"])),
                load="poisson",
                rate_req_s=rates[stage],
                num_requests=min(MOST_REQUESTS, int(STAGE_S * rates[stage])),
                isl=prompt,
                osl=answer,
                max_num_seqs=SEATS,
                max_num_batched_tokens=int(float(run["max_num_batched_tokens"])),
                gpu_memory_utilization=float(run["gpu_mem_util"]),
                note="KV offload to the host" if run["cpu_offload"] == "True" else "",
                measured=found,
            ),
        )


def blis(path: Path, catalog: Catalog) -> tuple[Table, Rows]:
    """Return an entry per experiment, with stages weighted by requests as in the file's summaries, and the stages."""
    with path.open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    theirs: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        for ours, name in METRICS.items():
            if record["metric_name"] == name and record["stage_index"] == "-1":
                theirs[record["exp_id"]][record["simulator"]][ours] = float(record["mpe"]) / 100
    stages: dict[str, Rows] = defaultdict(list)
    for experiment, row in blis_rows(records):
        stages[experiment].append((row, predict(row, catalog)))
        print(".", end="", flush=True)
    print()
    table: Table = []
    for experiment, runs in sorted(stages.items(), key=lambda item: float(item[0])):
        first, _ = runs[0]
        if not all(prediction.metrics for _, prediction in runs):
            print(experiment, first.model, [prediction.reason for _, prediction in runs])
            continue
        weights = [row.rate_req_s or 0.0 for row, _ in runs]
        measured = _weighted([row.measured for row, _ in runs], weights)
        predicted = _weighted([prediction.metrics for _, prediction in runs], weights)
        whole = replace(first, id=experiment, measured=measured)
        table.append((whole, {OURS: errors(measured, predicted), **theirs[experiment]}))
    return table, [run for runs in stages.values() for run in runs]


def llmservingsim(folder: Path, catalog: Catalog) -> tuple[Table, Rows]:
    """Return an entry per recorded run; the errors of LLMServingSim are those in its validation/summary.txt."""
    table: Table = []
    rows: Rows = []
    for meta in sorted(folder.glob("*/*/vllm/meta.json")):
        about = json.loads(meta.read_text(encoding="utf-8"))
        engine_args = about["engine_kwargs"]
        ranks = engine_args["data_parallel_size"]
        tp = engine_args["tensor_parallel_size"]
        with tempfile.TemporaryDirectory() as place:
            replay = Path(place) / "requests.csv"
            measured = _replayed(meta.parent / "requests.jsonl", replay)
            row = BenchRow(
                line=0,
                id="-".join(meta.parts[-4:-2]),
                source_key="llmservingsim",
                gpu={"RTX4090": "rtx-4090", "RTXPRO6000": "rtx-pro-6000-server"}[meta.parts[-4]],
                model=engine_args["model"],
                precision="bf16",
                engine="vLLM",
                engine_version=about["vllm_version"],
                n_gpus=tp * ranks,
                tp=tp,
                dp=ranks,
                ep=ranks if engine_args["enable_expert_parallel"] else None,
                interconnect="PCIe5 x16" if tp * ranks > 1 else "",
                load="trace",
                replay=str(replay),
                isl=measured.pop("isl"),
                osl=measured.pop("osl"),
                max_num_seqs=engine_args["max_num_seqs"],
                max_num_batched_tokens=engine_args["max_num_batched_tokens"],
                gpu_memory_utilization=0.9,
                measured_at="engine",
                measured=measured,
            )
            prediction = predict(row, catalog)
        if not prediction.metrics:
            print(row.id, prediction.reason)
            continue
        theirs = dict(_summary(meta.parents[1] / "validation" / "summary.txt"))
        table.append((row, {OURS: errors(measured, prediction.metrics), "LLMServingSim": theirs}))
        rows.append((row, prediction))
    return table, rows


def _replayed(requests: Path, replay: Path) -> dict[str, float]:
    """Write arrivals and lengths to *replay*. Return mean latencies from the engine's queue, and mean lengths."""
    rows = [json.loads(line) for line in requests.read_text(encoding="utf-8").splitlines() if line.strip()]
    begin = min(row["arrival_time"] for row in rows)
    with replay.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arrival_s", "prompt_tokens", "output_tokens"])
        for row in rows:
            writer.writerow([row["arrival_time"] - begin, row["input_toks"], row["output_toks"]])
    ttft = [row["first_token_ts"] - row["queued_ts"] for row in rows]
    e2e = [row["last_token_ts"] - row["queued_ts"] for row in rows]
    tpot = [
        (whole - first) / (row["output_toks"] - 1)
        for row, first, whole in zip(rows, ttft, e2e, strict=True)
        if row["output_toks"] > 1
    ]
    return {
        f"{name}_mean_ms": 1e3 * mean(values) for name, values in (("e2e", e2e), ("ttft", ttft), ("tpot", tpot))
    } | {name: mean(row[theirs] for row in rows) for name, theirs in (("isl", "input_toks"), ("osl", "output_toks"))}


def _summary(path: Path) -> Iterator[tuple[str, float]]:
    words = {"TTFT Mean": "ttft_mean_ms", "TPOT Mean": "tpot_mean_ms", "Latency Mean": "e2e_mean_ms"}
    for line in path.read_text(encoding="utf-8").splitlines():
        for name, column in words.items():
            if line.startswith(name):
                yield column, float(line.split()[-1].rstrip("%")) / 100


def errors(measured: Mapping[str, float], predicted: Mapping[str, float]) -> dict[str, float]:
    """Return predicted / measured - 1."""
    return {name: predicted[name] / measured[name] - 1 for name in METRICS}


def _weighted(values: list[dict[str, float]], weights: list[float]) -> dict[str, float]:
    whole = sum(weights)
    return {
        name: sum(one[name] * weight for one, weight in zip(values, weights, strict=True)) / whole for name in METRICS
    }


def show(table: Table, by_gpu: bool) -> None:
    """Print every run with our signed errors, and the median absolute error of every tool on its runs."""
    print(f"{'run':34} {'model':34} {'gpu':16} tp   E2E   TTFT  TPOT of gpufleet, %")
    for row, tools in table:
        cells = " ".join(f"{100 * tools[OURS][name]:+6.1f}" for name in METRICS)
        print(f"{row.id:34} {row.model.rpartition('/')[2]:34} {row.gpu:16} {row.n_gpus} {cells}  {row.note}")
    for tool in sorted({tool for _, tools in table for tool in tools}):
        of_tool = [(row.gpu, tools[tool]) for row, tools in table if tool in tools]
        _median_line(tool, [found for _, found in of_tool])
        for gpu in sorted({gpu for gpu, _ in of_tool}) if by_gpu else ():
            _median_line(f"  on {gpu}", [found for where, found in of_tool if where == gpu])


def _median_line(name: str, found: list[dict[str, float]]) -> None:
    cells = []
    for metric in METRICS:
        values = [abs(errors[metric]) for errors in found if metric in errors]
        cells.append(f"{100 * median(values):6.1f}" if values else "     -")
    print(f"{name:26} {len(found):3} runs, median |error| %: E2E, TTFT, TPOT {' '.join(cells)}")


def write(path: Path, rows: Rows) -> None:
    """Write the measured rows (for BLIS one per stage), followed by `<metric>_predicted`."""
    columns = (
        "id",
        "source_key",
        "gpu",
        "n_gpus",
        "model",
        "precision",
        "engine",
        "engine_version",
        "tp",
        "dp",
        "ep",
        "load",
    )
    more = (
        "rate_req_s",
        "num_requests",
        "isl",
        "osl",
        "max_num_seqs",
        "max_num_batched_tokens",
        "gpu_memory_utilization",
    )
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, *more, *METRICS, *(f"{name}_predicted" for name in METRICS)])
        for row, prediction in rows:
            known: list[Any] = [getattr(row, name) for name in (*columns, *more)]
            figures = [*(row.measured[name] for name in METRICS), *(prediction.metrics.get(name) for name in METRICS)]
            writer.writerow([*known, *figures])


def main() -> None:
    """Read the given files, predict and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--blis", type=Path)
    parser.add_argument("--llmservingsim", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    catalog = load_catalog()
    rows: Rows = []
    if given.blis:
        table, stages = blis(given.blis, catalog)
        rows += stages
        show(table, by_gpu=True)
        print("BLIS claims, median over 36 runs, %: E2E, TTFT, ITL", *THEIR_CLAIMS.values())
    if given.llmservingsim:
        table, runs = llmservingsim(given.llmservingsim, catalog)
        rows += runs
        show(table, by_gpu=False)
    if given.out:
        write(given.out, rows)


if __name__ == "__main__":
    main()
