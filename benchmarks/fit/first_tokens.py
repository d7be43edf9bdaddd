"""Causes of first tokens that are predicted too early under load, tested on left-out rows and on replays.

    python benchmarks/fit/first_tokens.py MEASURED outputs/fit/left_out.csv

A cause is a time that the simulation lacks, proportional to something that a row states: an API server that handles
every token, to clients; reading prompts, to prompt tokens; a poll or a late output, to steps. Each is fitted alone to
the missing time of a group of rows. A cause is general only where engines and campaigns agree on it.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from math import log as ln
from pathlib import Path
from statistics import fmean, median

import numpy as np
from fidelity import TABLES
from numpy.typing import NDArray
from rows import pair, publisher, publisher_of, read_rows
from scipy.optimize import least_squares

from sim.benchdata import BenchRow
from sim.catalogue.catalog import load_catalog
from sim.fidelity.bench_scenario import REQUESTS_PER_CLIENT
from sim.fidelity.prediction import campaigns_of, prepared, with_client_pause
from sim.fleet.fleet import RunningFleet

Floats = NDArray[np.float64]

FEWEST_ROWS = 15
"""Smallest number of rows of a group in the table."""
MOST_CLIENTS = 255
"""Largest number of clients of a row: most servers run 256 concurrent sequences, and more clients queue."""
QUEUED = 0.85
"""Relative error from which a row counts as queued in one of measurement and simulation alone."""
HUBER = 0.2
"""Residual beyond which Huber's loss grows linearly, as a fraction of the measured time."""
FULL_ROWS = 4
"""Number of rows at which a pair has its full weight."""
DRAWS = 40
"""Number of draws of pairs behind the range of a coefficient."""
LOW, HIGH = 10, 90
"""Percentiles of the draws that are the ends of the range."""
MS = 1000.0
AT_ONCE_S = 0.01
"""Longest wait of a replayed request that was scheduled at the step after it was queued [s]."""


@dataclass(frozen=True, slots=True)
class LoadedRow:
    """Closed-loop row with its TTFT predicted with the pair left out [ms]."""

    row: BenchRow
    measured_ms: float
    predicted_ms: float
    tpot_ms: float
    first_wave: float
    """Fraction of the run's requests that its clients send together at the start."""

    @property
    def clients(self) -> float:
        """Number of clients."""
        return float(self.row.concurrency or 0)

    @property
    def prompt_tokens(self) -> float:
        """Mean number of prompt tokens."""
        return self.row.isl or 0.0

    @property
    def missing(self) -> float:
        """Fraction of the measured time that the prediction lacks."""
        return 1 - self.predicted_ms / self.measured_ms


CAUSES: dict[str, Callable[[LoadedRow], float]] = {
    "steps": lambda one: one.tpot_ms,
    "ms per client": lambda one: one.clients,
    "ms per 1,000 tokens/s": lambda one: one.clients / one.tpot_ms,
    "us per prompt token": lambda one: one.prompt_tokens / MS,
    "ms per request before it in the first wave": lambda one: one.first_wave * one.clients / 2,
    "us per prompt token before it in the first wave": (
        lambda one: one.first_wave * one.clients / 2 * one.prompt_tokens / MS
    ),
}
"""Time that a cause adds to the mean TTFT of a row for a coefficient of 1 [ms]."""
INFERENCEX = "inferencex"
"""Campaign with the most rows, whose client is the same for all engines."""
GROUPS = {
    "vLLM, InferenceX": ("vLLM", True),
    "vLLM, other publishers": ("vLLM", False),
    "SGLang, InferenceX": ("SGLang", True),
    "SGLang, other publishers": ("SGLang", False),
    "TensorRT-LLM, InferenceX": ("TensorRT-LLM", True),
}
"""Name of a group of rows -> their engine, and whether they are InferenceX's."""


def loaded_rows(rows: dict[str, BenchRow], left_out: Path) -> list[LoadedRow]:
    """Return the rows with TTFT and TPOT of several clients in a closed loop."""
    campaigns, found = campaigns_of(load_catalog()), []
    lines: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    with left_out.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["scheme"] == "pairs" and line["table"] in TABLES:
                lines[line["id"]][line["metric"]] = line
    for name, of in lines.items():
        row = rows[name]
        clients = row.concurrency or 0
        if {"ttft", "tpot"} <= of.keys() and row.load == "closed_loop" and 1 < clients <= MOST_CLIENTS:
            setup = campaigns.setup(row)
            requests = setup.num_requests or clients * (setup.requests_per_client or REQUESTS_PER_CLIENT)
            measured, predicted = (float(of["ttft"][key]) for key in ("measured", "predicted"))
            share = min(1.0, clients / requests)
            found.append(LoadedRow(row, measured, predicted, float(of["tpot"]["measured"]), share))
    return [one for one in found if abs(one.missing) < QUEUED]


def coefficient(rows: list[LoadedRow], cause: Callable[[LoadedRow], float]) -> tuple[float, float, float]:
    """Return the coefficient of *cause*, and its 10th and 90th percentile over draws of pairs."""
    pairs = [pair(one.row) for one in rows]
    weights = np.array([min(1.0, FULL_ROWS / pairs.count(name)) for name in pairs]) ** 0.5
    missing = np.array([one.missing for one in rows])
    added = np.array([cause(one) / one.measured_ms for one in rows])

    def fitted(chosen: NDArray[np.int_]) -> float:
        def off(found: Floats) -> Floats:
            residuals: Floats = (added[chosen] * found[0] - missing[chosen]) * weights[chosen]
            return residuals

        return float(least_squares(off, [0.0], loss="huber", f_scale=HUBER).x[0])

    places = {name: np.array([i for i, other in enumerate(pairs) if other == name]) for name in set(pairs)}
    names, draw = sorted(places), np.random.default_rng(0)
    drawn = [fitted(np.concatenate([places[name] for name in draw.choice(names, len(names))])) for _ in range(DRAWS)]
    low, high = np.percentile(drawn, [LOW, HIGH])
    return fitted(np.arange(len(rows))), float(low), float(high)


def repeats(rows: Iterable[BenchRow]) -> str:
    """Return how far InferenceX's runs of one configuration of vLLM differ, by release."""
    by_setting: dict[tuple[object, ...], list[BenchRow]] = defaultdict(list)
    for row in rows:
        if (
            row.source_key == INFERENCEX
            and row.engine == "vLLM"
            and {"ttft_mean_ms", "tpot_mean_ms"} <= set(row.measured)
        ):
            layout = (row.n_gpus, row.tp, row.pp, row.dp, row.ep)
            by_setting[row.gpu, row.model, row.precision, layout, row.isl, row.osl, row.concurrency].append(row)
    apart: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for runs in by_setting.values():
        for one, other in combinations(runs, 2):
            if one.measured != other.measured:
                release = "one release" if one.engine_version == other.engine_version else "two releases"
                ratios = [one.measured[name] / other.measured[name] for name in ("ttft_mean_ms", "tpot_mean_ms")]
                apart[release].append(tuple(abs(ln(ratio)) for ratio in ratios))
    texts = []
    for release, found in sorted(apart.items()):
        ttft, tpot = (median(one[i] for one in found) for i in range(2))
        texts.append(f"{release}: TTFT {ttft:.1%}, TPOT {tpot:.1%} ({len(found)})")
    return "; ".join(texts)


def replayed(row: BenchRow) -> str:
    """Return the errors of a replay's first tokens, counted from arrivals, of requests scheduled at once and later.

    The record counts from the time when the engine's core reads the request from its input queue, at the end of a step.
    """
    with prepared(row, load_catalog()) as one:
        log = RunningFleet(with_client_pause(one.plan, row.isl)).run()
    with Path(row.replay).open(encoding="utf-8", newline="") as file:
        record = list(csv.DictReader(line for line in file if not line.startswith("#")))
    columns = ("arrival_s", "queued_s", "scheduled_s", "ttft_ms", "tpot_ms")
    arrived_s, queued_s, scheduled_s, ttft_ms, tpot_ms = (
        np.array([float(line[name]) for line in record]) for name in columns
    )
    requests = sorted(log.requests, key=lambda request: request.index)
    simulated_ms = MS * np.array([request.first_token_s - request.arrived_s for request in requests])
    from_arrival_ms = ttft_ms + MS * (queued_s - arrived_s)
    texts = []
    at_once = scheduled_s - queued_s < AT_ONCE_S
    for name, those in (("scheduled at once", at_once), ("after a wait", ~at_once)):
        off_ms = float((simulated_ms - from_arrival_ms)[those].mean())
        texts.append(
            f"{those.sum()} {name}: {from_arrival_ms[those].mean():.0f} ms, simulated {off_ms:+.0f} ms "
            f"({off_ms / float(tpot_ms.mean()):+.2f} steps)"
        )
    whole = fmean(simulated_ms) / fmean(from_arrival_ms) - 1
    return (
        f"all {whole:+.1%}; {'; '.join(texts)}; queued {MS * float((queued_s - arrived_s).mean()):.0f} ms after arrival"
    )


def main(measured: Path, left_out: Path) -> None:
    """Print the tables."""
    rows = {row.id: row for row in read_rows(measured)}
    loaded = loaded_rows(rows, left_out)
    groups = {
        name: [one for one in loaded if (one.row.engine, one.row.source_key == INFERENCEX) == members]
        for name, members in GROUPS.items()
    }
    groups = {name: of for name, of in groups.items() if len(of) >= FEWEST_ROWS}
    print(f"| missing time | {' | '.join(groups)} |\n{'| --- ' * (len(groups) + 1)}|")
    for name, cause in CAUSES.items():
        cells = ["{:+.2f} ({:+.2f} to {:+.2f})".format(*coefficient(of, cause)) for of in groups.values()]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\n| publisher | engine | rows, pairs | TTFT |\n| --- | --- | --- | --- |")
    by_publisher: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in loaded:
        by_publisher[publisher(publisher_of(one.row)), one.row.engine][pair(one.row)].append(-one.missing)
    for (who, engine), of_pairs in sorted(by_publisher.items()):
        bias, count = median(median(of) for of in of_pairs.values()), sum(map(len, of_pairs.values()))
        print(f"| {who} | {engine} | {count}, {len(of_pairs)} | {bias:+.0%} |")
    print(f"\nInferenceX, vLLM, one configuration run twice: {repeats(rows.values())}")
    for row in rows.values():
        if row.load == "trace" and row.replay:
            print(f"{row.model}: {replayed(row)}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
