"""Calibration to a user's own runs: factors with intervals, the calibration file, and tables.

Factors are maximum a posteriori estimates. Their intervals are those of the posterior, with a noise of at least the
scatter of the residuals: contradictory runs determine nothing. A factor that the runs cannot distinguish from others
changes by its expected share of their joint effect; a factor without any effect on the runs stays 1.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from statistics import stdev

import numpy as np

from sim.benchdata.nccl_tests import AllReduceRun
from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog
from sim.fidelity.bench_scenario import BenchCase, case_of
from sim.fidelity.fit import (
    KNOWN_SD,
    METRICS,
    Fit,
    FittingProblem,
    Simulator,
    Theta,
    calibration_of,
    load_priors,
)
from sim.fidelity.link_factors import link_factors
from sim.fidelity.prediction import MS_PER_S, Prediction, campaigns_of
from sim.language import N_, _
from sim.message import Message, joined, placed
from sim.report.terminal_table import FittedTable
from sim.scenario.resolving.bind import bind
from sim.steptime.calibration import Calibration, CalibrationRuns, Factor
from sim.study.confidence import SERVER, server_of
from sim.study.metrics.statistics import CONFIDENCE, normal_quantile
from sim.yamlio import YamlError, dump, read_text


def own_runs(rows: Sequence[BenchRow], catalog: Catalog) -> Iterator[CalibrationRuns]:
    """Yield a summary for each combination of model, format, engine and layout of *rows*, in their order."""
    groups: dict[tuple[object, ...], list[BenchRow]] = defaultdict(list)
    for row in rows:
        case = case_of(row, catalog, campaigns_of(catalog))
        groups[_server(case, catalog)].append(case.row)
    for server, members in groups.items():
        flights = [flight for row in members if (flight := _in_flight(row))]
        prompts = [row.isl for row in members if row.isl]
        loads = {"runs": run_count(members), "prompt": (min(prompts), max(prompts))}
        loads["sequences"] = (min(flights), max(flights)) if len(flights) == len(members) else None
        yield CalibrationRuns.model_validate(dict(zip(SERVER, server, strict=True)) | loads)


def run_count(rows: Sequence[BenchRow]) -> int:
    """Return the number of runs; parts of one recording count as one run."""
    parts = [row.counted.recording for row in rows if row.counted]
    return len(rows) - len(parts) + len(set(parts))


def _server(case: BenchCase, catalog: Catalog) -> tuple[object, ...]:
    scenario = case.scenario()
    fleet = scenario.fleets[0]
    return server_of(bind(scenario, fleet, fleet.pools[0], catalog))


def _in_flight(row: BenchRow) -> float | None:
    """Return the requests in flight, set by the client or by Little's law; None if neither is known."""
    if row.load == "single":
        return 1.0
    return row.concurrency or row.avg_batch or (row.rate_req_s or 0.0) * _served_s(row) or None


def _served_s(row: BenchRow) -> float:
    measured = row.measured
    answer_ms = measured.get("ttft_mean_ms", 0.0) + measured.get("tpot_mean_ms", 0.0) * (row.osl or 0.0)
    return measured.get("e2e_mean_ms", answer_ms) / MS_PER_S


MOST_REASONS = 10
MOST_RUNS = 200
"""Largest number of runs to fit; of longer tables every second, third, ... run is used."""
DRAWS = 8
"""Number of random draws by which the effect of quantities that metrics pages lack is estimated."""


@dataclass(frozen=True, slots=True)
class FittedFactors:
    """Calibration with the rows that were skipped or contradict it."""

    calibration: Calibration
    skipped: tuple[tuple[BenchRow, str], ...] = ()
    """Rows that were not used, each with the reason."""
    contradicting: tuple[tuple[BenchRow, str, float], ...] = ()
    """Runs that the factors do not explain: row, metric, error."""
    noise: float = 1.0
    """Scatter of the residuals relative to the expected noise; above 1 the runs contradict each other or the model."""


class NothingToFit(ValueError):
    """Error for a table without usable rows; the message states the reasons."""


def calibrate(
    rows: Sequence[BenchRow],
    gpu: str,
    catalog: Catalog,
    workers: int,
    table: str = "",
    all_reduces: Sequence[AllReduceRun] = (),
) -> FittedFactors:
    """Fit the factors of the machine with GPU *gpu* (an id) to the *rows* that it ran and its *all_reduces*.

    Raises
    ------
    NothingToFit
        No row can be used.

    """
    priors = load_priors(catalog.root / "calibration.yaml")
    simulator = Simulator(catalog, gpu, workers)
    problem = _problem(rows, simulator)
    if not problem.observed:
        raise NothingToFit(_why_nothing(problem, gpu, table))
    if all_reduces:
        problem.known = _measured_links(problem, all_reduces, catalog)
    fit = Fit(problem, priors, simulator)
    fit.descend()
    share = priors.determined_below.value
    factors = {
        name: _factor(fit.theta[name], sd, sd <= share * fit.usual_sd[name]) for name, sd in fit.posterior_sd().items()
    }
    calibration = calibration_of(gpu, factors).model_copy(
        update={
            "table": table,
            "rows": len(problem.rows),
            "measured": tuple(own_runs(problem.rows, catalog)),
            "errors": fit.errors(),
        }
    )
    return FittedFactors(calibration, tuple(problem.skipped), tuple(fit.outliers()), fit.noise)


def calibrate_link(
    all_reduces: Sequence[AllReduceRun], gpu: str, interconnect: str, catalog: Catalog, table: str = ""
) -> FittedFactors:
    """Return the factors of a link that *all_reduces* between GPUs *gpu* (an id) determine without any run.

    *interconnect* is the id of the link; empty: the GPU's own. Raises UnknownId; NothingToFit for times between
    servers without the link's id.
    """
    if not interconnect and any(run.hosts > 1 for run in all_reduces):
        raise NothingToFit(
            "all-reduces between servers: name their link (--about interconnect=ID; gpufleet list links)"
        )
    found = link_factors(all_reduces, catalog.link(interconnect or catalog.gpu(gpu).link))
    known = {name: _factor(log_factor, KNOWN_SD, determined=True) for name, log_factor in found.items()}
    return FittedFactors(calibration_of(gpu, known).model_copy(update={"table": table, "rows": 0}))


def _measured_links(problem: FittingProblem, all_reduces: Sequence[AllReduceRun], catalog: Catalog) -> Theta:
    """Return the log factors of the links of all rows. Raises NothingToFit where no row uses a link."""
    names = [name for name in set().union(*problem.names) if name.startswith("links.")]
    links = sorted({name.removeprefix("links.").rpartition(".")[0] for name in names})
    if not links:
        raise NothingToFit("all-reduces were measured, but no run is on several GPUs: name one, or leave them out")
    found = [link_factors(all_reduces, catalog.link(link)) for link in links]
    return {name: log_factor for one in found for name, log_factor in one.items()}


def _factor(theta: float, sd: float, determined: bool) -> Factor:
    low, high = (float(np.exp(theta + side * normal_quantile((1 + CONFIDENCE) / 2) * sd)) for side in (-1, 1))
    return Factor(factor=round(float(np.exp(theta)), 4), low=round(low, 4), high=round(high, 4), determined=determined)


def _problem(rows: Sequence[BenchRow], simulator: Simulator) -> FittingProblem:
    """Return the rows of the simulator's GPU that can be simulated, and the columns to compare."""
    found = FittingProblem()
    own = []
    for row in rows:
        reason = simulator.why_not(row)
        if reason:
            found.skipped.append((row, reason))
        else:
            own.append(row)
    taken = own[:: -(-len(own) // MOST_RUNS)] if own else []
    found.skipped += [
        (row, Message("{used} of {count} runs are enough", len(taken), len(own))) for row in own if row not in taken
    ]
    first = simulator.runs(taken, [[{}]] * len(taken))
    for row, [prediction] in zip(taken, first, strict=True):
        if prediction.status != "covered":
            found.skipped.append((row, prediction.reason))
        else:
            columns = _columns(row, prediction)
            if columns:
                found.observed += [(len(found.rows), metric, column) for metric, column in columns]
                found.chance_sd += _chance_sd(row, [column for _, column in columns], simulator)
                found.rows.append(row)
                found.names.append(_names(prediction))
            else:
                found.skipped.append((row, "holds neither throughput nor time per token nor an unsaturated TTFT"))
    return found


def _chance_sd(row: BenchRow, columns: Sequence[str], simulator: Simulator) -> list[float]:
    """Return the standard deviation of each log column due to random draws that the counters of *row* do not determine.

    With a queue, small differences have large effects.
    """
    if row.counted is None:
        return [0.0] * len(columns)
    drawn = [replace(row, counted=replace(row.counted, draw=number)) for number in range(1, 1 + DRAWS)]
    drawn_metrics = [one.metrics for [one] in simulator.runs(drawn, [[{}]] * DRAWS)]
    logs = [[log(one[column]) for one in drawn_metrics if column in one] for column in columns]
    return [stdev(found) if len(found) == DRAWS else 1.0 for found in logs]


def _columns(row: BenchRow, prediction: Prediction) -> list[tuple[str, str]]:
    columns = []
    for metric, names in METRICS.items():
        given = [name for name in names if name in row.measured and prediction.metrics.get(name)]
        if given and not (metric == "ttft" and (prediction.saturated or prediction.cold_start)):
            columns.append((metric, given[0]))
    return columns


def _names(prediction: Prediction) -> set[str]:
    host = {
        f"engines.{prediction.engine}.{name}" for name in ("step_overhead", "sequence_overhead", "request_overhead")
    }
    link = {f"links.{prediction.link}.{name}" for name in ("latency", "time_per_byte")} if prediction.link else set()
    return {"compute_efficiency", "memory_efficiency"} | host | link


def skip_lines(skipped: Sequence[tuple[BenchRow, str]], table: str) -> list[str]:
    """Return a line for each reason to skip rows, with its first row; the most frequent reason first."""
    counts = Counter(reason for _, reason in skipped)
    first = {reason: row for row, reason in reversed(skipped)}
    lines: list[str] = []
    for reason, count in counts.most_common(MOST_REASONS):
        place = f"{table}:{first[reason].line}" if first[reason].line else first[reason].id
        lines.append(placed(place, reason) + (Message(" ({count} rows)", count) if count > 1 else ""))
    left = len(counts) - MOST_REASONS
    return [*lines, Message("and {count} other reasons", left)] if left > 0 else lines


def _why_nothing(problem: FittingProblem, gpu: str, table: str) -> str:
    return joined(
        "\n",
        [Message("{table}: no run can be used to calibrate {gpu}", table, gpu), *skip_lines(problem.skipped, table)],
    )


HEADER = """\
# Factors on the figures in data/, fitted by `gpufleet calibrate` to {runs} in {table}.
# A scenario takes them with `calibration: <this file>`, at the top, in a fleet or in a pool.
# factor: what the figure is multiplied by; low and high hold it in 95 of 100 cases; not determined: the runs do not
# distinguish it from others, and it has its expected share of their joint change.
"""
MOST_NAMED = 10
WIDE_SCATTER = 1.5


def calibration_text(calibration: Calibration) -> str:
    """Return the text of the calibration file."""
    runs = f"{calibration.rows} runs" if calibration.rows else "all-reduces"
    head = HEADER.format(runs=runs, table=calibration.table or "a table")
    return head + dump(calibration.model_dump(mode="json"))


def why_not_replaced(path: Path, gpu: str, table: str, force: bool) -> str:
    """Return the reason why the file *path* is not replaced by factors of *gpu* fitted to *table*; empty if it is.

    A file that `calibration_text` wrote for the same GPU and table is replaced; for others only with *force*.
    """
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if not text.startswith(HEADER.partition("{")[0]):
        return _("exists and is not a calibration; name another file")
    try:
        data = read_text(text, str(path)).data
        known = (data.get("gpu"), _file_names(data.get("table") or ""))
    except (YamlError, AttributeError):
        known = (None, "")
    if force or known == (gpu, _file_names(table)):
        return ""
    return _(
        "holds factors of {known}, fitted to {table}; --force replaces them, another file keeps both",
        known=known[0],
        table=known[1],
    )


def _file_names(table: str) -> str:
    """Return the names of all files in *table*, without folders."""
    return " ".join(Path(one).name for one in table.split(" "))


def calibration_report(fitted: FittedFactors) -> list[FittedTable | str]:
    """Return the output for the terminal: factors, errors before and after, undetermined factors."""
    calibration = fitted.calibration
    rows = []
    for name, factor in factors(calibration):
        if not calibration.rows and not name.startswith("links."):
            continue
        note = "" if factor.determined else _("not distinguishable")
        rows.append(
            [name, f"{factor.factor:.2f}", _("{low:.2f} and {high:.2f}", low=factor.low, high=factor.high), note]
        )
    errors = [
        [metric, str(error.rows), f"{error.before:.1%}", f"{error.after:.1%}"]
        for metric, error in calibration.errors.items()
    ]
    found: list[FittedTable | str] = [
        FittedTable((_("factor on"), _("now"), _("95 % between"), ""), rows, frozenset({0, 3}))
    ]
    if calibration.rows:
        found += ["", FittedTable((_("median error of"), _("runs"), _("before"), _("after")), errors)]
    return [*found, *_remarks(fitted)]


def factors(calibration: Calibration) -> Iterator[tuple[str, Factor]]:
    """Yield every factor with its dotted name."""
    yield "compute_efficiency", calibration.compute_efficiency
    yield "memory_efficiency", calibration.memory_efficiency
    for kind, holders in (("engines", calibration.engines), ("links", calibration.links)):
        for holder, own in holders.items():
            for name in type(own).model_fields:
                yield f"{kind}.{holder}.{name}", getattr(own, name)


def _remarks(fitted: FittedFactors) -> Iterator[str]:
    calibration = fitted.calibration
    unknown = [name for name, factor in factors(calibration) if not factor.determined]
    if unknown and calibration.rows:
        yield _(
            "These runs do not distinguish {unknown} from the other factors: their combination is accurate at these "
            "loads, and less reliable elsewhere. Runs at other loads distinguish them.",
            unknown=", ".join(unknown),
        )
    if fitted.noise > WIDE_SCATTER and calibration.rows > 1:
        scatter = _("they scatter {noise:.1f} times as much as expected", noise=fitted.noise)
        yield _(
            "The runs contradict each other or the model: {scatter}; the intervals include this scatter.",
            scatter=scatter,
        )
    for row, column, error in fitted.contradicting[:MOST_NAMED]:
        side = N_("{place}: simulated {column} stays {share:.0%} above the measured one")
        if error <= 0:
            side = N_("{place}: simulated {column} stays {share:.0%} below the measured one")
        yield _(side, place=_place(calibration, row), column=column, share=abs(error))
    if (more := len(fitted.contradicting) - MOST_NAMED) > 0:
        yield _("and {more} more with such an error", more=more)
    if fitted.skipped:
        yield _("Not used:")
        yield from skip_lines(fitted.skipped, calibration.table)


def _place(calibration: Calibration, row: BenchRow) -> str:
    """Return the place of *row*: its line in the table, or its id if the file holds one row or several were merged."""
    return f"{calibration.table}:{row.line}" if row.line else row.id
