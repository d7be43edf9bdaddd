"""Watch a simulated cluster for two weeks through a real Prometheus server: alarm, forecast, order date, restarts.

gpufleet's own engine serves `watched.yaml` at rising rates, once on a usual and once on a slower host; each hour of the
history is one of these hours, chosen by the hour's rate. The history is written as vLLM's series (counters, histograms,
gauges) and DCGM's, with a server that restarts and three hours without collection, and is loaded into Prometheus by
`promtool tsdb create-blocks-from openmetrics`. `gpufleet watch --once` then reads it by range queries, and the same
history from OTLP files, a week of them rotated and compressed.

    python benchmarks/watched_cluster.py --prometheus /usr/bin --work /tmp/watched          # watch.md has the results

Debian's package `prometheus` has both programs.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from math import ceil, log, pi, sin
from pathlib import Path

import numpy as np

import sim

SCENARIO = Path(__file__).with_name("watched.yaml")
HOUR_S, STEP_S = 3600, 60
LIBRARY_HOURS, LOWEST, HIGHEST = 36, 0.09, 0.65
"""Simulated hours, and their lowest and highest rates [1/s]."""
SLOWER = 2.5
"""Factor on the host time of each step of the slower host."""
DAYS, SLOW_FROM_H = 14, 10 * 24
GROWTH_PER_WEEK, BASE_RPS = 0.08, 0.25
LATER_GROWTH = 0.15
"""Growth per week of the longer histories."""
RESTART_S, GAP_H = (5 * 24 + 9) * HOUR_S + 1800, (8 * 24 + 2, 8 * 24 + 5)
"""Time at which the second server restarts [s], and hours without collection."""
BUCKETS = {
    "time_to_first_token_seconds": (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
    "inter_token_latency_seconds": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
    "e2e_request_latency_seconds": (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480),
    "request_prompt_tokens": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000),
    "request_generation_tokens": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000),
}
"""Buckets of vLLM's histograms."""
MODEL = "llama3.1-8b"


def rate_of(hour: int, growth: float, noise: float, start: int, linear: bool = False) -> float:
    """Return the rate in an hour after *start* (Unix s): growth, day, weekend and noise."""
    monday_h = start // HOUR_S + hour - 4 * 24
    day = 0.45 * sin(2 * pi * (monday_h % 24 - 9) / 24)
    weekend = -0.35 if monday_h // 24 % 7 >= 5 else 0.0
    grown = log(1 + growth * hour / 168) if linear else log(1 + growth) * hour / 168
    return float(BASE_RPS * np.exp(grown + day + weekend + noise))


def host_file(work: Path, factor: float) -> Path:
    """Write the calibration file of a host whose steps cost *factor* times the usual host time."""
    file = work / f"host-{factor:g}.yaml"
    same = f"{{factor: {factor}, low: {factor}, high: {factor}, determined: true}}"
    file.write_text(f"gpu: rtx-4090\nengines: {{vllm-0.10: {{step_overhead: {same}}}}}\n")
    return file


class Library:
    """Simulated hours of the cluster on one host, with the requests of each server."""

    def __init__(self, work: Path, host: float, hours: int = LIBRARY_HOURS) -> None:
        self.rates = LOWEST * (HIGHEST / LOWEST) ** (np.arange(hours) / (hours - 1))
        folder = work / f"library-{host:g}"
        values = {
            "workload.arrivals": {"process": "profile", "hourly_rps": [float(one) for one in self.rates]},
            "horizon_s": HOUR_S * hours + 600,
            "warmup_s": 0,
            "seed": 5,
            "slo": {"ttft_s": 1.0},
            "requests": "parquet",
            "calibration": str(host_file(work, host)),
        }
        run = sim.run(SCENARIO, values, 1, out=folder, quiet=True, force=True)
        found, usage = run.requests, run.usage
        found = found[found.status == "finished"]
        self.power = [
            usage[(usage.start_s >= at * HOUR_S) & (usage.start_s < (at + 1) * HOUR_S)].gpu_energy_j.sum() / HOUR_S
            for at in range(hours)
        ]
        columns = ["arrived_s", "first_token_s", "finished_s", "prompt_tokens", "output_tokens", "replica"]
        self.requests = found[columns].to_numpy(float)

    def hour(self, rate: float, chance: np.random.Generator, near: int = 2) -> tuple[np.ndarray, float]:
        """Return the requests of one of the *near* hours next to *rate*, times from its start, and the power [W]."""
        nearest = np.argsort(np.abs(np.log(self.rates / rate)))[:near]
        place = int(chance.choice(nearest))
        begin = place * HOUR_S
        own = self.requests[(self.requests[:, 0] >= begin) & (self.requests[:, 0] < begin + HOUR_S)].copy()
        own[:, :3] -= begin
        return own, self.power[place]


def history(
    libraries: dict[float, Library], seed: int, days: int, growth: float, slow_from_h: int | None, start: int
) -> tuple[np.ndarray, list[float]]:
    """Return the requests of *days* days (times from the start) and the power in each hour."""
    chance = np.random.default_rng(seed)
    parts, power = [], []
    for hour in range(days * 24):
        host = SLOWER if slow_from_h is not None and hour >= slow_from_h else 1.0
        own, watts = libraries[host].hour(rate_of(hour, growth, 0.05 * chance.standard_normal(), start), chance)
        own[:, :3] += hour * HOUR_S
        parts.append(own)
        power.append(watts)
    return np.concatenate(parts), power


def series_of(grid: np.ndarray, name: str, values: np.ndarray, at: np.ndarray, weight=None):
    """Yield (suffix, labels, cumulative samples) of a histogram whose *values* are counted at the times *at*."""
    order = np.argsort(at)
    at, values = at[order], values[order]
    weight = np.ones(len(at)) if weight is None else weight[order]
    upto = np.searchsorted(at, grid, side="right")

    def counted(each: np.ndarray) -> np.ndarray:
        return np.concatenate([[0.0], np.cumsum(each)])[upto]

    for bound in (*BUCKETS[name], float("inf")):
        label = "+Inf" if bound == float("inf") else f"{float(bound)}"
        yield "_bucket", f'le="{label}"', counted(weight * (values <= bound))
    yield "_sum", "", counted(weight * values)
    yield "_count", "", counted(weight)


def all_series(
    requests: np.ndarray, power: list[float], grid: np.ndarray
) -> Iterator[tuple[str, str, str, np.ndarray]]:
    """Yield (metric family, kind, series, samples) of both servers at the times *grid* from the start."""
    for family in (*BUCKETS, "prompt_tokens", "generation_tokens", "request_success", "num_requests_running",
                   "num_requests_waiting", "kv_cache_usage_perc"):  # fmt: skip
        for server in (0, 1):
            own = requests[requests[:, 5] == server]
            labels = f'model_name="{MODEL}",engine="0",instance="gpu-{server}:8000",job="vllm"'
            arrived, first, ended, prompt, output = own[:, :5].T
            steps = np.maximum(output - 1, 1e-9)
            gap = (ended - first) / steps
            if family in BUCKETS:
                values, at, weight = {
                    "time_to_first_token_seconds": (first - arrived, first, None),
                    "inter_token_latency_seconds": (gap, ended, np.round(steps)),
                    "e2e_request_latency_seconds": (ended - arrived, ended, None),
                    "request_prompt_tokens": (prompt, ended, None),
                    "request_generation_tokens": (output, ended, None),
                }[family]
                for end, more, samples in series_of(grid, family, values, at, weight):
                    text = ",".join(filter(None, (labels, more)))
                    yield f"vllm:{family}", "histogram", f"vllm:{family}{end}{{{text}}}", samples
                continue
            if family in ("prompt_tokens", "generation_tokens", "request_success"):
                at, each = {
                    "prompt_tokens": (first, prompt),
                    "generation_tokens": (ended, output),
                    "request_success": (ended, np.ones(len(ended))),
                }[family]
                order = np.argsort(at)
                upto = np.searchsorted(at[order], grid, side="right")
                samples = np.concatenate([[0.0], np.cumsum(each[order])])[upto]
                more = ',finished_reason="stop"' if family == "request_success" else ""
                yield f"vllm:{family}", "counter", f"vllm:{family}_total{{{labels}{more}}}", samples
                continue
            count = lambda at: np.searchsorted(np.sort(at), grid, side="right")  # noqa: E731
            running = (count(first) - count(ended)).astype(float)
            waiting = (count(arrived) - count(first)).astype(float)
            samples = {"num_requests_running": running, "num_requests_waiting": waiting}.get(family, running / 60)
            yield f"vllm:{family}", "gauge", f"vllm:{family}{{{labels}}}", samples
    watts = np.repeat(power, HOUR_S // STEP_S)
    for gpu in (0, 1):
        samples = watts[np.minimum((grid // STEP_S).astype(int), len(watts) - 1)] / 2
        yield (
            "DCGM_FI_DEV_POWER_USAGE",
            "gauge",
            f'DCGM_FI_DEV_POWER_USAGE{{gpu="{gpu}",Hostname="gpu-{gpu}"}}',
            samples,
        )


def faulty_series(
    requests: np.ndarray, power: list[float], days: int
) -> tuple[np.ndarray, Iterator[tuple[str, str, str, np.ndarray]]]:
    """Return the times with samples, and the series at them, with the restart and the gap."""
    grid = np.arange(0, days * 24 * HOUR_S + 1, STEP_S, float)
    kept = ~((grid > GAP_H[0] * HOUR_S) & (grid <= GAP_H[1] * HOUR_S))

    def series() -> Iterator[tuple[str, str, str, np.ndarray]]:
        for family, kind, name, samples in all_series(requests, power, grid):
            if "gpu-1:8000" in name and kind != "gauge":
                samples = samples - np.where(grid >= RESTART_S, samples[int(RESTART_S // STEP_S)], 0.0)
            yield family, kind, name, samples[kept]

    return grid[kept], series()


def write_history(file: Path, requests: np.ndarray, power: list[float], start: int, days: int) -> None:
    """Write the series as OpenMetrics."""
    grid, every = faulty_series(requests, power, days)
    told = ""
    with file.open("w", encoding="utf-8") as out:
        for family, kind, name, samples in every:
            if family != told:
                out.write(f"# TYPE {family} {kind}\n")
                told = family
            out.writelines(f"{name} {value:.9g} {start + int(at)}\n" for at, value in zip(grid, samples, strict=True))
        out.write("# EOF\n")


def write_otlp(file: Path, requests: np.ndarray, power: list[float], start: int, days: int) -> None:
    """Write the series as a collector's file exporter does; the first half as a rotated file that is compressed."""
    grid, every = faulty_series(requests, power, days)
    metrics: dict[tuple[tuple[str, str], ...], dict[tuple[str, str], dict[str, np.ndarray]]] = {}
    for family, kind, name, samples in every:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', name))
        part = labels.pop("le", name.partition("{")[0].removeprefix(family))
        shown = family if kind == "histogram" else name.partition("{")[0]
        metrics.setdefault(tuple(labels.items()), {}).setdefault((shown, kind), {})[part] = samples
    rotated = file.with_name(f"{file.stem}-2026-01-01T00-00-00.000{file.suffix}.gz")
    half = len(grid) // 2
    for places in (range(half), range(half, len(grid))):
        with file.open("w") if places.start else gzip.open(rotated, "wt", 1) as out:
            for place in places:
                resources = [_resource(dict(labels), own, place, grid[place], start) for labels, own in metrics.items()]
                out.write(json.dumps({"resourceMetrics": resources}) + "\n")


def _resource(
    labels: dict[str, str], metrics: dict[tuple[str, str], dict[str, np.ndarray]], place: int, at_s: float, start: int
) -> dict[str, object]:
    """Return the OTLP metrics of the series with the same labels at a time."""
    names = {"instance": "service.instance.id", "job": "service.name"}
    own, rest = (
        [(names.get(k, k), v) for k, v in labels.items() if (k in names) == chosen] for chosen in (True, False)
    )
    resource, attributes = ([{"key": k, "value": {"stringValue": v}} for k, v in pairs] for pairs in (own, rest))
    again = labels.get("instance") == "gpu-1:8000" and at_s >= RESTART_S
    times = {"startTimeUnixNano": str(int(start + (RESTART_S if again else 0)) * 10**9)}
    point = {"attributes": attributes, **times, "timeUnixNano": str(int(start + at_s) * 10**9)}
    found = []
    for (name, kind), parts in metrics.items():
        if kind == "histogram":
            ends = [one for one in parts if not one.startswith("_")]
            counts = np.diff([parts[end][place] for end in ends], prepend=0.0)
            data: dict[str, object] = {
                "explicitBounds": [float(end) for end in ends[:-1]],
                "bucketCounts": [str(int(one)) for one in counts],
                "count": str(int(parts["_count"][place])),
                "sum": float(parts["_sum"][place]),
            }
        else:
            [values] = parts.values()
            data = {"asDouble": float(values[place])}
        more = {
            "counter": {"isMonotonic": True, "aggregationTemporality": 2},
            "histogram": {"aggregationTemporality": 2},
        }
        key = "sum" if kind == "counter" else kind
        found.append({"name": name, key: {**more.get(kind, {}), "dataPoints": [{**point, **data}]}})
    return {"resource": {"attributes": resource}, "scopeMetrics": [{"metrics": found}]}


def hours_in(out: Path) -> dict[str, np.ndarray]:
    """Return the columns of the stored hours."""
    with closing(sqlite3.connect(out / "watch.sqlite")) as database:
        cursor = database.execute("SELECT * FROM hours ORDER BY hour")
        rows = np.array(cursor.fetchall(), float)
        return {one[0]: rows[:, place] for place, one in enumerate(cursor.description)}


def compare_otlp(work: Path, requests: np.ndarray, power: list[float], start: int) -> None:
    """Watch the same history from OTLP files, and print how far its hours are from those of Prometheus."""
    file, out = work / "history.json", work / "filed"
    write_otlp(file, requests, power, start, DAYS)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(work / "answer" / "points", out / "points")
    began = time.monotonic()
    done = watch(("--otlp", str(file)), out)
    print(done.stderr, f"OTLP files: {time.monotonic() - began:.0f} s", sep="\n")
    by_query, by_file = hours_in(work / "answer"), hours_in(out)
    size = min(len(by_query["hour"]), len(by_file["hour"]))
    for name, values in by_query.items():
        one, other = values[:size], by_file[name][:size]
        known = ~np.isnan(one) | ~np.isnan(other)
        far = np.abs(one - other)[known] / np.maximum(np.abs(one[known]), 1e-12)
        print(f"{name}: {size} hours, largest relative difference {far.max() if far.size else 0:.1e}")


class Server:
    """Prometheus server on its own folder."""

    def __init__(self, programs: Path, work: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        config = work / "prometheus.yml"
        config.write_text("scrape_configs: []\n")
        self._process = subprocess.Popen(
            [programs / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={work / 'tsdb'}",
             "--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"],
            stdout=subprocess.DEVNULL, stderr=(work / "prometheus.log").open("w"),
        )  # fmt: skip
        for _ in range(150):
            try:
                urllib.request.urlopen(f"{self.url}/-/ready", timeout=2).read()
                return
            except OSError:
                time.sleep(0.2)
        raise SystemExit("Prometheus does not start: see prometheus.log")

    def stop(self) -> None:
        """Stop the server."""
        self._process.terminate()
        self._process.wait()


def watch(source: tuple[str, str], out: Path, **how: object) -> subprocess.CompletedProcess:
    """Run `gpufleet watch --once`."""
    command = [sys.executable, "-m", "sim", "watch", str(SCENARIO), *source, "--once", "--out", str(out)]
    environment = os.environ | {"COLUMNS": "80"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **how)


def loaded(work: Path, programs: Path, requests: np.ndarray, power: list[float], days: int, start: int) -> None:
    """Load the history into a new database."""
    text = work / "history.om"
    write_history(text, requests, power, start, days)
    shutil.rmtree(work / "tsdb", ignore_errors=True)
    command = [
        programs / "promtool",
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        text,
        work / "tsdb",
        "--max-block-duration=500h",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text.unlink()


def killed(url: str, out: Path, after_s: float) -> None:
    """Start the command, and kill it with SIGKILL after *after_s* seconds."""
    command = [sys.executable, "-m", "sim", "watch", str(SCENARIO), "--prometheus", url, "--once", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def first_above(capacity: float, growth: float, lead_days: float, start: int) -> tuple[float, float]:
    """Return the day on which the busiest hour passes *capacity*, and the day of the order, from the start."""
    hours = next(hour for hour in range(24 * 365) if rate_of(hour, growth, 0.0, start) > capacity)
    return hours / 24, hours / 24 - lead_days


def repeated(libraries: dict[float, Library], seeds: int, start: int) -> None:
    """Print alarms and held intervals of further histories, from their requests without a server.

    An hour's prediction is the median of the hours at its rate on the usual host.
    """
    from sim.watch.drift import drift_of, threshold
    from sim.watch.forecast import forecast_of

    usual = libraries[1.0]
    means = [mean_latencies(usual.hour(float(rate), np.random.default_rng(0), 1)[0]) for rate in usual.rates]
    hours = [start + HOUR_S * hour for hour in range(DAYS * 24)]
    false, delays, held = 0, [], []
    for seed in range(seeds):
        for slow_from_h in (None, SLOW_FROM_H):
            requests, _ = history(libraries, 100 + seed, DAYS, GROWTH_PER_WEEK, slow_from_h, start)
            parts = np.split(requests, np.searchsorted(requests[:, 0], [HOUR_S * hour for hour in range(1, DAYS * 24)]))
            alarms = []
            for place, name in enumerate(("ttft_s_mean", "tpot_s_mean")):
                curve = np.log([one[place] for one in means])
                rates = np.log([len(one) / HOUR_S for one in parts])
                said = np.exp(np.interp(rates, np.log(usual.rates), curve))
                seen = np.array([mean_latencies(one)[place] for one in parts])
                alarms.append(drift_of(name, hours, (seen / said).tolist(), threshold(6)).alarm)
            raised = [(one.raised - start) // HOUR_S + 1 for one in alarms if one is not None]
            if slow_from_h is None:
                false += len(raised)
            else:
                delays.append(min(raised, default=10**6) - slow_from_h)
        chance = np.random.default_rng(seed)
        load = [rate_of(hour, GROWTH_PER_WEEK, 0.05 * chance.standard_normal(), start) for hour in range(21 * 24)]
        found = forecast_of(hours, load[: DAYS * 24], 7)
        truth = np.array(load[DAYS * 24 :])
        held.append(float(((truth >= found.low) & (truth <= found.high)).mean()))
    print(f"{seeds} unchanged fortnights: {false} false alarms of TTFT or TPOT")
    print(f"{seeds} slowdowns: first alarm after {min(delays)} to {max(delays)} h, median {np.median(delays):.0f} h")
    kept = f"{np.mean(held):.1%} ({min(held):.0%} to {max(held):.0%})"
    print(f"80 % intervals of the week after {seeds} fortnights hold {kept}")
    for weeks, growth, linear in ((2, GROWTH_PER_WEEK, True), (6, LATER_GROWTH, True), (6, LATER_GROWTH, False)):
        forecasts(seeds, weeks, growth, linear, start)


def forecasts(seeds: int, weeks: int, growth: float, linear: bool, start: int) -> None:
    """Print trends, held intervals and dates of the capacity of histories of *weeks* weeks, from their hourly rates.

    The capacity is what the busiest hour reaches four weeks after the history.
    """
    from sim.watch.forecast import forecast_of
    from sim.watch.orders import outlook_of

    size, ahead = 168 * weeks, 56
    hours = [start + HOUR_S * hour for hour in range(size)]
    capacity = max(rate_of(size + hour, growth, 0.0, start, linear) for hour in range(28 * 24))
    truth_h = next(hour for hour in range(10**5) if rate_of(hour, growth, 0.0, start, linear) >= capacity)
    chosen, held, missed, early = [], [], [], []
    for seed in range(seeds):
        chance = np.random.default_rng(seed)
        load = [
            rate_of(hour, growth, 0.05 * chance.standard_normal(), start, linear) for hour in range(size + 24 * ahead)
        ]
        found = forecast_of(hours, load[:size], ahead)
        truth = np.array(load[size : size + 28 * 24])
        chosen.append(found.linear)
        held.append(float(((truth >= found.low[: len(truth)]) & (truth <= found.high[: len(truth)])).mean()))
        outlook = outlook_of(found, capacity, None, max(load[size - 168 : size]), 2, 0.0, 30.0)
        true_s = start + truth_h * HOUR_S
        missed.append((found.starts[-1] if outlook.middle is None else outlook.middle) - true_s)
        early.append((found.starts[-1] if outlook.early is None else outlook.early) - true_s)
    days = np.array([missed, early]) / 86_400
    print(
        f"{weeks} weeks, {'linear' if linear else 'exponential'} growth of {growth:.0%}: linear chosen in "
        f"{sum(chosen)} of {seeds}; intervals of four weeks hold {np.mean(held):.1%} "
        f"({min(held):.0%} to {max(held):.0%}); date of the capacity: median {np.median(days[0]):+.0f} days "
        f"({days[0].min():+.0f} to {days[0].max():+.0f}), early end {np.median(days[1]):+.0f} days "
        f"({days[1].min():+.0f} to {days[1].max():+.0f})",
        flush=True,
    )


def mean_latencies(requests: np.ndarray) -> tuple[float, float]:
    """Return mean TTFT and mean time between tokens [s]."""
    arrived, first, ended, _, output = requests[:, :5].T
    return float((first - arrived).mean()), float((ended - first).sum() / np.maximum(output - 1, 0).sum())


def main() -> None:
    """Build the history, load it, watch it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", type=Path, default=Path("/usr/bin"), help="folder of prometheus and promtool")
    parser.add_argument("--work", type=Path, default=Path("/tmp/watched"))
    parser.add_argument("--port", type=int, default=9911)
    parser.add_argument("--keep", action="store_true", help="watch the history that is loaded")
    parser.add_argument("--seeds", type=int, default=20, help="further histories, without a server")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    libraries = {host: Library(given.work, host) for host in (1.0, SLOWER)}
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    start = int((now - timedelta(days=DAYS)).timestamp())
    requests, power = history(libraries, 1, DAYS, GROWTH_PER_WEEK, SLOW_FROM_H, start)
    print(f"{len(requests):,} requests in {DAYS} days", flush=True)
    if given.keep and (given.work / "start").exists():
        start = int((given.work / "start").read_text())
    else:
        loaded(given.work, given.prometheus, requests, power, DAYS, start)
        (given.work / "start").write_text(str(start))
    server = Server(given.prometheus, given.work, given.port)
    out = given.work / "answer"
    shutil.rmtree(out, ignore_errors=True)
    try:
        for after_s in (6.0, 12.0, 20.0):
            killed(server.url, out, after_s)
        began = time.monotonic()
        first = watch(("--prometheus", server.url), out)
        print(first.stdout, first.stderr, f"{time.monotonic() - began:.0f} s", sep="\n")
        again = given.work / "again"
        shutil.rmtree(again, ignore_errors=True)
        shutil.copytree(out / "points", again / "points")  # simulations; hours, alarms and calibrations are new
        watch(("--prometheus", server.url), again)
        same = (out / "watch.json").read_bytes() == (again / "watch.json").read_bytes()
        print(f"killed three times and restarted, the same answer as without: {same}")
        found = json.loads((out / "watch.json").read_text())
        slow = datetime.fromtimestamp(start + SLOW_FROM_H * HOUR_S, UTC)
        for alarm in found["alarms"]:
            raised = datetime.fromisoformat(alarm["raised"].replace("Z", "+00:00")) + timedelta(hours=1)
            hours = (raised - slow).total_seconds() / HOUR_S
            print(f"alarm: {alarm['metric']} x {alarm['ratio']:.3f}, {hours:.0f} h after the slowdown")
        capacity, lead = found["capacity"]["rps"], found["order"]["lead_time_days"]
        reached, order = first_above(capacity, GROWTH_PER_WEEK, lead, start)
        day = lambda days: (datetime.fromtimestamp(start, UTC) + timedelta(days=days)).date()  # noqa: E731
        print(f"true date of the capacity {capacity:.3f} req/s: {day(reached)}, order by {day(order)}")
        print(f"answered: {found['capacity']['reached']}, order by {found['order_date']}")
        ahead = max(rate_of(int(reached * 24) + hour, GROWTH_PER_WEEK, 0.0, start) for hour in range(30 * 24))
        print(f"replicas by hand: {ceil(2 * ahead / capacity) - 2}, answered: {found['order']['replicas']}")
    finally:
        server.stop()
    compare_otlp(given.work, requests, power, start)
    repeated(libraries, given.seeds, start)


if __name__ == "__main__":
    main()
