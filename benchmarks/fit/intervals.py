"""Confidence of predictions: index of measured servers, errors of left-out rows, and intervals from both.

    python benchmarks/other_loads.py MEASURED/serving.csv --write outputs/fit/other_loads.csv
    gpufleet validate benchmarks/fit/unseen_2026_12.csv --out outputs/unseen
    gpufleet validate benchmarks/fit/unseen_2026_12b.csv --out outputs/unseen_b
    python benchmarks/fit/intervals.py MEASURED outputs/fit/left_out.csv outputs/fit/left_out_power.csv --write data
        --strangers benchmarks/fit/unseen_2026_12.csv outputs/unseen/validation.csv
        --strangers benchmarks/fit/unseen_2026_12b.csv outputs/unseen_b/validation.csv
        --calibrated outputs/fit/other_loads.csv

Needs the errors that steptime.py writes, and those that power.py writes to outputs/fit/left_out_power.csv if present.
It takes seconds. By the method in benchmarks/fit/README.md it writes

data/fidelity/measured.csv    measured GPUs, models, formats, engines, layouts and loads, without results
data/fidelity/left_out.csv    measured / predicted of rows whose publisher was left out of the fit, with the mark that
                              they have without it; of fitted rows with a near measurement; of rows in no fit
data/fidelity/intervals.yaml  10th and 90th percentile of these, by metric and mark, over all servers and by class of
                              GPUs and engine; and of servers that were calibrated on two of their loads
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from pathlib import Path

from observe import compared
from quantiles import (
    BY_PUBLISHER,
    GROUPS,
    METRICS,
    Error,
    chosen,
    classes_of,
    common_sd,
    covered_by_classes,
    covered_share,
    enough,
    in_class,
    intervals,
    quantiles,
    stretch_of,
    thinned,
)
from rows import judged, publisher, publisher_of, read_rows, released

from sim.benchdata import BenchRow, read_benchmarks
from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.engine import family_of
from sim.catalogue.model import params_total
from sim.catalogue.quantization import native_quantization
from sim.fidelity.bench_scenario import layout
from sim.fidelity.names import NotCovered, match
from sim.fidelity.prediction import campaigns_of
from sim.study.confidence import (
    COLUMNS,
    MARKS,
    MeasuredSetup,
    PredictedSetting,
    gpu_class,
    link_class,
    mark_of,
    model_kind,
)

BILLION = 1e9
LEFT_OUT = ("metric", "mark", "gpu_class", "gpu", "engine", "family", "campaign", "measured_over_predicted")


@dataclass(frozen=True, slots=True)
class Located:
    """Measured row in the terms of the index."""

    row: BenchRow
    setting: PredictedSetting
    prompt: float


def located(rows: Sequence[BenchRow], catalog: Catalog) -> Iterator[Located]:
    """Yield the judged rows that the catalogue covers."""
    campaigns = campaigns_of(catalog)
    for row in rows:
        setup = campaigns.setup(row)
        try:
            names = match(replace(row, isl=setup.isl, osl=setup.osl), catalog, campaigns)
        except NotCovered:
            continue
        tp, pp, dp, _ = layout(row, setup)
        weights = native_quantization(catalog.quantization(names.quantization), names.model, catalog.quantization)
        setting = PredictedSetting(
            gpu=names.gpu.id,
            architecture=names.gpu.architecture,
            family=names.model.family or names.model.id,
            kind=model_kind(names.model),
            params_billion=float(f"{params_total(names.model) / BILLION:.4g}"),
            kernel=weights.kernel,
            engine=family_of(names.engine.id),
            link=link_class(catalog.link(names.link), tp * pp * dp),
            tp=tp,
            pp=pp,
            dp=dp,
            sequences=1.0 if row.load == "single" else row.concurrency or row.avg_batch,
            prompt=setup.isl,
            gpu_class=gpu_class(names.gpu),
        )
        yield Located(row, setting, setup.isl or 1.0)


def located_cards(catalog: Catalog) -> Iterator[Located]:
    """Yield the additional runs whose power power.py fits; only their power is evaluated."""
    with (Path(__file__).parent / "power_cards.csv").open(newline="", encoding="utf-8") as file:
        cards = [card for card in csv.DictReader(file) if card["fit"] == "1"]
    for card in cards:
        gpu, model, engine = catalog.gpu(card["gpu"]), catalog.model(card["model"]), catalog.engine(card["engine"])
        gpus, prompt, in_turn = int(card["n_gpus"]), float(card["prompt"]), engine.id == "llama.cpp"
        setting = PredictedSetting(
            gpu=gpu.id,
            architecture=gpu.architecture,
            family=model.family or model.id,
            kind=model_kind(model),
            params_billion=float(f"{params_total(model) / BILLION:.4g}"),
            kernel=catalog.quantization(card["quantization"]).kernel,
            engine=family_of(engine.id),
            link=link_class(catalog.link(card["link"] or gpu.link), gpus),
            tp=1 if in_turn else gpus,
            pp=gpus if in_turn else 1,
            sequences=float(card["requests"]),
            prompt=prompt,
            gpu_class=gpu_class(gpu),
        )
        campaign = publisher(card["source"])
        yield Located(BenchRow(0, card["id"], gpu.id, model.id, source_key=campaign), setting, prompt)


def index_of(rows: Sequence[Located]) -> list[MeasuredSetup]:
    """Return the index, with one entry for all rows that differ only in their load."""
    groups: dict[tuple[object, ...], list[Located]] = defaultdict(list)
    for one in rows:
        groups[_key(one.setting)].append(one)
    return [_entry(members) for _, members in sorted(groups.items(), key=lambda item: str(item[0]))]


def _key(setting: PredictedSetting) -> tuple[object, ...]:
    return tuple(getattr(setting, name) for name in COLUMNS if hasattr(setting, name))


def _entry(members: list[Located]) -> MeasuredSetup:
    first = members[0].setting
    sequences = [one.setting.sequences for one in members if one.setting.sequences]
    prompts = [one.prompt for one in members]
    return MeasuredSetup(
        **{name: getattr(first, name) for name in COLUMNS if hasattr(first, name)},  # type: ignore[arg-type]
        sequences_low=min(sequences, default=inf),
        sequences_high=max(sequences, default=0.0),
        prompt_low=min(prompts),
        prompt_high=max(prompts),
        rows=len(members),
        campaigns=len({publisher_of(one.row) for one in members}),
    )


def left_out(
    path: Path, rows: Sequence[Located], index: list[MeasuredSetup], cards: Sequence[Located] = ()
) -> Iterator[Error]:
    """Yield the errors in the file *path*, each with its mark by the index without the left-out rows.

    Of fitted rows only those with a near measurement (themselves or others) count. A file of errors without whole
    campaigns describes servers whose host and client are not known; without a pair or a GPU, others of the same host
    are still fitted, and these lines are ignored. *cards* are not in the index.
    """
    by_id = {one.row.id: one for one in (*rows, *cards)}
    without = {
        out: index_of([one for one in rows if publisher_of(one.row) != out])
        for out in sorted({publisher_of(one.row) for one in rows})
    }
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    passed_over = ("pairs", "gpus") if any(line["scheme"] == "campaigns" for line in lines) else ()
    for line in lines:
        one = by_id.get(line["id"])
        if one is None or float(line["predicted"]) <= 0 or line["scheme"] in passed_over:
            continue
        setting = one.setting
        known = without.get(publisher_of(one.row), index) if line["scheme"] == "campaigns" else index
        mark, _ = mark_of(setting, [entry for entry in known if not _without(line["scheme"], setting, entry)])
        ratio = float(line["measured"]) / float(line["predicted"])
        yield _error(METRICS[line["metric"]], mark, one, ratio)


def _error(metric: str, mark: str, one: Located, ratio: float) -> Error:
    place = one.setting
    return Error(metric, mark, place.gpu, place.family, publisher_of(one.row), ratio, place.engine, place.gpu_class)


def of_strangers(table: Path, validation: Path, catalog: Catalog, index: list[MeasuredSetup]) -> Iterator[Error]:
    """Yield errors of servers in no fit, described by *table*; *validation* is the output of validate."""
    rows = {one.row.id: one for one in located(read_benchmarks(table), catalog)}
    with validation.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            one = rows.get(line["id"])
            if one is None or line["status"] != "covered":
                continue
            mark, _ = mark_of(one.setting, index)
            for metric, column in compared(one.row, line["saturated"] == "true"):
                if line[f"{column}_predicted"]:
                    ratio = one.row.measured[column] / float(line[f"{column}_predicted"])
                    yield _error(METRICS[metric], mark, one, ratio)


def _without(scheme: str, setting: PredictedSetting, entry: MeasuredSetup) -> bool:
    """Return whether *entry* was left out of the fit that predicted *setting*."""
    same_gpu = entry.gpu == setting.gpu
    return {"gpus": same_gpu, "pairs": same_gpu and entry.family == setting.family}.get(scheme, False)


def of_calibrated(path: Path) -> Iterator[Error]:
    """Yield errors at other loads of servers calibrated on two, as benchmarks/other_loads.py writes them."""
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["calibrated_on"] == "2":
                described = (line["metric"], "calibrated", line["gpu"], line["family"], line["campaign"])
                yield Error(*described, float(line["measured_over_predicted"]))


def write(folder: Path, index: Sequence[MeasuredSetup], *errors: Sequence[Error]) -> None:
    """Write the three files: *errors* of left-out rows, of servers in no fit, of calibrated servers."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "measured.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([f"{v:g}" if isinstance(v, float) else v for v in _cells(entry)] for entry in index)
    with (folder / "left_out.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(LEFT_OUT)
        writer.writerows(
            [one.metric, one.mark, one.gpu_class, one.gpu, one.engine, one.family, one.campaign, f"{one.ratio:.3f}"]
            for one in chain(*errors)
        )
    (folder / "intervals.yaml").write_text(intervals(*errors), encoding="utf-8")


def _cells(entry: MeasuredSetup) -> list[object]:
    return [getattr(entry, name) for name in COLUMNS]


def _interval_line(errors: Sequence[Error], strangers: Sequence[Error], stretch: float) -> str:
    """Return the interval of *errors* and its coverage of left-out groups; of *strangers* on their own."""
    low, high = quantiles(errors, stretch)
    tried = [("GPU", GROUPS[0], errors), ("publisher", BY_PUBLISHER, errors), ("in no fit", BY_PUBLISHER, strangers)]
    shares = ", ".join(
        f"{name} {covered_share(errors, group, 1.0, some):.0%} inside, "
        f"{covered_share(errors, group, stretch, some):.0%} stretched"
        for name, group, some in tried
        if some
    )
    count = f"{len(errors):5d} rows {len({one.pair for one in errors}):3d} pairs"
    return (
        f"{count}: {low:.2f} to {high:.2f} ({stretch:g} times the quantiles), {shares}, common {common_sd(errors):.2f}"
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", type=Path)
    parser.add_argument(
        "errors", type=Path, nargs="*", help="left_out.csv of steptime.py, left_out_power.csv of power.py"
    )
    parser.add_argument(
        "--strangers",
        type=Path,
        nargs=2,
        action="append",
        default=[],
        metavar=("TABLE", "VALIDATION"),
        help="servers in no fit, and their predictions; may be given for several tables",
    )
    parser.add_argument("--calibrated", type=Path, help="other_loads.csv of other_loads.py")
    parser.add_argument("--write", type=Path, help="the data/ folder to write into")
    arguments = parser.parse_args()
    catalog = load_catalog()
    known = [row for row in read_rows(arguments.measured) if judged(row) and not released(row)]
    rows = list(located(known, catalog))
    index, cards = index_of(rows), list(located_cards(catalog))
    errors = thinned([error for path in arguments.errors for error in left_out(path, rows, index, cards)])
    strangers = thinned([error for files in arguments.strangers for error in of_strangers(*files, catalog, index)])
    print(f"{len(rows)} rows in {len(index)} entries, {len(errors)} errors, {len(strangers)} of servers in no fit")
    calibrated = thinned(list(of_calibrated(arguments.calibrated))) if arguments.calibrated else []
    of_classes = {
        (metric, mark): stretch_of(
            chosen([*errors, *strangers], metric, mark), chosen(strangers, metric, mark), covered_by_classes
        )
        for metric in METRICS.values()
        for mark in (*MARKS, "calibrated")
    }
    for place in (("", ""), *classes_of([*errors, *strangers])):
        print("\n" + (", ".join(filter(None, place)) or "all servers"))
        own, outside = in_class([*errors, *strangers, *calibrated], *place), in_class(strangers, *place)
        for metric in METRICS.values():
            for mark in (*MARKS, "calibrated"):
                if enough(some := chosen(own, metric, mark)):
                    tested = chosen(outside, metric, mark)
                    stretch = of_classes[metric, mark] if place[0] else stretch_of(some, tested)
                    print(f"{metric:10s} {mark:18s} {_interval_line(some, tested, stretch)}")
    if arguments.write:
        write(arguments.write / "fidelity", index, errors, strangers, calibrated)


if __name__ == "__main__":
    main()
