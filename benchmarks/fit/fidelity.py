"""Table and picture of docs/fidelity.md from the errors that steptime.py writes.

python benchmarks/fit/fidelity.py MEASURED outputs/fit/left_out.csv docs/images/fidelity.png
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
from observe import prepare
from parameters import OVERHEADS, SHARED_OVERHEADS, Priors, load_priors
from rows import judged, left_out, publisher, publisher_named, read_rows, thinned
from steptime import compared_rows, simulated

from sim.benchdata import BenchRow
from sim.catalogue.catalog import load_catalog
from sim.fidelity.bench_scenario import layout, layout_name
from sim.fidelity.picture import Points, key_of, scatter
from sim.fidelity.prediction import campaigns_of
from sim.fidelity.scores import (
    ALL,
    OPEN_LOADS,
    JointError,
    RankedServer,
    answer_error,
    joint_scores,
    load_class,
    rankings,
)
from sim.report.charts.panels import style
from sim.report.charts.picture import picture

Line = dict[str, str]
Chosen = Callable[[Line], bool]
TABLES = ("measured", "public")
"""Tables of rows that are fitted and judged; those of the table "released" are judged alone."""
LABELS = {"tput": "throughput [token/s]", "tpot": "TPOT [ms]", "ttft": "TTFT [ms]"}


def over_pcie(line: Line) -> bool:
    """Return whether a row has several GPUs that communicate over PCIe according to its source."""
    return int(line["n_gpus"]) > 1 and line["interconnect"].startswith("PCIe")


def loaded(line: Line) -> bool:
    """Return whether a row has more than one request at a time."""
    return line["load"] not in ("single", "burst", "static_batch")


CLASSES: tuple[tuple[str, str, str, Chosen], ...] = (
    ("seen: all groups in the fit, throughput", "in-sample", "tput", lambda line: True),
    ("seen: all groups in the fit, TPOT", "in-sample", "tpot", lambda line: True),
    ("unseen model on a seen GPU and engine, throughput", "pairs", "tput", lambda line: True),
    ("unseen model on a seen GPU and engine, TPOT", "pairs", "tpot", lambda line: True),
    ("unseen GPU, throughput", "gpus", "tput", lambda line: True),
    ("unseen GPU, TPOT", "gpus", "tpot", lambda line: True),
    ("unseen publisher: host, client, release; throughput", "campaigns", "tput", lambda line: True),
    ("unseen publisher, TPOT", "campaigns", "tpot", lambda line: True),
    ("several GPUs over PCIe, pair left out, throughput", "pairs", "tput", over_pcie),
    ("several GPUs over PCIe, GPU left out, throughput", "gpus", "tput", over_pcie),
    ("loaded, not saturated, pair left out, TTFT", "pairs", "ttft", loaded),
    ("loaded, not saturated, GPU left out, TTFT", "gpus", "ttft", loaded),
    ("loaded, not saturated, publisher left out, TTFT", "campaigns", "ttft", loaded),
    ("all pairs of public sources left out, throughput", "strangers", "tput", lambda line: True),
    ("all pairs of public sources left out, TPOT", "strangers", "tpot", lambda line: True),
    ("all pairs of public sources left out, loaded, TTFT", "strangers", "ttft", loaded),
    ("plain roofline, throughput", "roofline", "tput", lambda line: True),
    ("plain roofline, TPOT", "roofline", "tpot", lambda line: True),
    ("plain roofline, loaded, TTFT", "roofline", "ttft", loaded),
)


def plain_roofline(measured: Path) -> list[Line]:
    """Predict every row with the measured kernel efficiencies only, without host times and serving factors."""
    priors = load_priors()
    free = {"prompt_token", *(f"{what}:" for what in OVERHEADS if what.startswith("per_"))}
    ones = {
        f"{what}:" for what in ("kv_read", "moe", "kernel_compute", "kernel_graphics", "kernel_weight", "allreduce")
    }
    ones |= {*SHARED_OVERHEADS, "moe_compute", "serving_compute", "prefill_attention", "pipeline"}

    def bare(name: str, value: float) -> float:
        if name.startswith(tuple(free)):
            return 1e-12
        return 1.0 if name.startswith(tuple(ones)) else value

    plain = Priors({name: bare(name, value) for name, value in priors.values.items()}, priors.sd)
    ready, _ = prepare(thinned(read_rows(measured), judged), load_catalog())
    rows = simulated(ready, plain, {})
    return [{k: str(v) for k, v in line.items()} for one in rows for line in compared_rows("roofline", one)]


def pair_medians(lines: list[Line], scheme: str, metric: str, chosen: Chosen) -> list[float]:
    """Return the median absolute relative error of every pair of GPU and model family."""
    errors: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if line["scheme"] == scheme and line["metric"] == metric and chosen(line):
            error = abs(float(line["predicted"]) / float(line["measured"]) - 1)
            errors[f"{line['gpu']} {line['family']}"].append(error)
    return [float(np.median(of_pair)) for of_pair in errors.values()]


def table(lines: list[Line]) -> str:
    """Return the Markdown table of pairs in MEASURED next to those of public sources."""
    head = "| class | MEASURED: pairs, median, mean, 90th percentile | public sources |"
    rows = [head, "| --- | --- | --- |"]
    for label, scheme, metric, chosen in CLASSES:
        cells = []
        for name in TABLES:
            own = [line for line in lines if line["table"] == name]
            medians = pair_medians(own, scheme, metric, chosen)
            cells.append(_summary(medians) if medians else "")
        if any(cells):
            rows.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _summary(medians: list[float]) -> str:
    """Return the summary of errors; errors above 100 % count as 100 % in the mean."""
    mean = np.mean(np.minimum(medians, 1.0))
    return f"{len(medians)}: {np.median(medians):.1%}, {mean:.1%}, {np.percentile(medians, 90):.0%}"


def ranking(lines: list[Line], measured: Path, scheme: str, name: str, trusted: bool = False) -> str:
    """Return how often the faster of two servers is named, each predicted with its group left out.

    *trusted* restricts the rows to those that the fit may use.
    """
    rows = {row.id: row for row in read_rows(measured)}
    entrants = []
    for line in lines:
        row = rows[line["id"]]
        paced = line["metric"] == "tput" and row.load in OPEN_LOADS
        selected = line["scheme"] == scheme and line["table"] == name
        if selected and row.isl and row.osl and not paced and not (trusted and left_out(row)):
            column = next(name for name, value in row.measured.items() if value == float(line["measured"]))
            task = (row.model_family, row.load, row.concurrency, row.rate_req_s, row.num_requests, column)
            server = (row.gpu, row.n_gpus)
            guessed = float(line["predicted"])
            lengths = (row.isl, row.osl)
            entrants.append(RankedServer(task, lengths, server, line["metric"], row.measured[column], guessed))
    return ", ".join(
        f"{one.quantity} {one.right_share:.1%} of {one.comparisons} pairs of servers ({one.row_pairs} pairs of rows)"
        for one in rankings(entrants)
    )


def joint_errors(lines: Iterable[Line], rows: Mapping[str, BenchRow]) -> Iterator[JointError]:
    """Yield the errors of rows with TTFT and TPOT from *lines* of one scheme."""
    campaigns = campaigns_of(load_catalog())
    times: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for line in lines:
        times[line["id"]][line["metric"]] = float(line["predicted"]), float(line["measured"])
    for name, of in times.items():
        if "ttft" in of and "tpot" in of:
            row = rows[name]
            ttft, tpot = of["ttft"], of["tpot"]
            shape = layout_name(*layout(row, campaigns.setup(row)))
            errors = ttft[0] / ttft[1] - 1, tpot[0] / tpot[1] - 1, answer_error(row, ttft, tpot)
            yield JointError(row.engine, shape, load_class(row), (row.gpu, row.model_family), *errors)


def joint(lines: list[Line], measured: Path, scheme: str) -> str:
    """Return the Markdown table of biases of TTFT and TPOT of the same rows, by engine with its layouts and loads."""
    rows = {row.id: row for row in read_rows(measured)}
    found = joint_errors((line for line in lines if line["scheme"] == scheme), rows)
    text = ["| engine | rows with | rows, pairs | TTFT | TPOT | answer: bias, error | short, long | long, short |"]
    text.append("| --- " * 8 + "|")
    for one in joint_scores(found):
        part = one.load if one.load != ALL else one.layout
        shares = [f"{count / one.rows:.0%}" for count in (one.ttft_short_tpot_long, one.ttft_long_tpot_short)]
        biases = f"{one.ttft_bias:+.0%} | {one.tpot_bias:+.0%} | {one.answer_bias:+.0%}, {one.answer_error:.0%}"
        text.append(f"| {one.engine} | {part} | {one.rows}, {one.pairs} | {biases} | {' | '.join(shares)} |")
    return "\n".join(text)


def disagreement(lines: list[Line], metric: str, chosen: Chosen) -> str:
    """Return the difference between publishers of one pair, in measured over predicted, and the error that it implies.

    A prediction without error would be in the middle of all publishers of a pair, and the difference of two of them is
    the square root of two times their distance from it. Other models, loads and releases add to the difference, so that
    the implied error is at most as high as stated.
    """
    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line["scheme"] == "pairs" and line["metric"] == metric and chosen(line):
            name = publisher(publisher_named(line["source_key"]))
            ratios[f"{line['gpu']} {line['family']}"][name].append(float(line["predicted"]) / float(line["measured"]))
    found, pairs = [], 0
    for of_pair in ratios.values():
        medians = [float(np.log(np.median(of))) for of in of_pair.values()]
        pairs += len(medians) > 1
        found += [abs(one - other) for one, other in combinations(medians, 2)]
    middle = float(np.median(found))
    implied = middle / 2**0.5
    return f"{metric}: {pairs} pairs, {len(found)} differences, median {middle:.1%}, implied error {implied:.1%}"


def by_group(lines: list[Line], column: str, metric: str) -> str:
    """Return the median error of left-out pairs for each value of *column*."""
    found = []
    for value in sorted({line[column] for line in lines}):
        medians = pair_medians(lines, "pairs", metric, lambda line, value=value: line[column] == value)  # type: ignore[misc]
        if medians:
            found.append((float(np.median(medians)), f"{value} {np.median(medians):.0%} ({len(medians)})"))
    return ", ".join(text for _, text in sorted(found))


def draw(lines: list[Line], path: Path) -> None:
    """Draw predicted against measured values with the pair left out, a panel for each metric."""
    names = ("one GPU", "several GPUs")
    marks = style(names)
    figures = []
    for metric, label in LABELS.items():
        points: Points = {}
        for line in lines:
            if line["scheme"] == "pairs" and line["metric"] == metric:
                name = names[int(line["n_gpus"]) > 1]
                points.setdefault(name, []).append((float(line["measured"]), float(line["predicted"])))
        title = f"{label.split(' [')[0]}: pair left out"
        figures.append(scatter(title, f"predicted {label}", f"measured {label}", points, marks))
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(figures, "", [], key_of(marks)).save(path)


def main(measured: Path, errors: Path, image: Path) -> None:
    """Print the table and draw the picture."""
    with errors.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    lines += plain_roofline(measured)
    print(table(lines))
    fitted = [line for line in lines if line["table"] in TABLES]
    for scheme in ("in-sample", "pairs"):
        print(f"\nTTFT and TPOT of the same row, {scheme}:\n{joint(fitted, measured, scheme)}")
    for metric, some in (("tput", bool), ("tpot", bool), ("ttft", loaded)):
        print(f"\npublishers of one pair, {disagreement(fitted, metric, some)}")
    outside = [line for line in lines if line["table"] == "released"]
    print(f"\nTTFT and TPOT of the same row, released:\n{joint(outside, measured, 'in-sample')}")
    for scheme in ("in-sample", "pairs", "gpus"):
        for name in TABLES:
            print(f"\nranking, {scheme}, {name}: {ranking(lines, measured, scheme, name)}")
    print(f"\nranking, pairs, rows that teach: {ranking(lines, measured, 'pairs', 'measured', trusted=True)}")
    for name in TABLES:
        own = [line for line in lines if line["table"] == name]
        for metric in LABELS:
            for column in ("engine", "gpu", "source_key"):
                print(f"\n{name}, {metric} by {column}, pair left out: {by_group(own, column, metric)}")
    draw(lines, image)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
