"""What a calibration leaves: its file, and tables of its factors and of what they gain."""

from collections.abc import Iterator
from pathlib import Path

from sim.benchdata.row import BenchRow
from sim.language import N_, _
from sim.report.terminal.fitted import FittedTable
from sim.steptime import Calibration, Factor
from sim.study.fidelity.calibrate.factors import FittedFactors, told
from sim.yamlio import YamlError, dump, read_text

HEADER = """\
# Factors on the figures in data/, fitted by `gpufleet calibrate` to {rows} runs in {table}.
# A scenario takes them with `calibration: <this file>`, at the top, in a fleet or in a pool.
# factor: what the figure is multiplied by; low and high hold it in 95 of 100 cases; not determined: the runs do not
# tell it from the others, and it has the part in their change that was to be expected.
"""
MOST_NAMED = 10
WIDE_SCATTER = 1.5


def calibration_text(calibration: Calibration) -> str:
    """The file that a scenario names."""
    head = HEADER.format(rows=calibration.rows, table=calibration.table or "a table")
    return head + dump(calibration.model_dump(mode="json"))


def why_kept(path: Path, gpu: str, table: str, force: bool) -> str:
    """Why the file *path* is not replaced by factors of *gpu*, fitted to *table*; empty if it is.

    It is if `calibration_text` has written it for the same question; for another one only by *force*.
    """
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if not text.startswith(HEADER.partition("{")[0]):
        return _("exists and is no calibration; name another file")
    try:
        data = read_text(text, str(path)).data
        known = (data.get("gpu"), _names(data.get("table") or ""))
    except (YamlError, AttributeError):
        known = (None, "")
    if force or known == (gpu, _names(table)):
        return ""
    return _(
        "holds factors of {known}, fitted to {table}; --force replaces them, another file keeps both",
        known=known[0],
        table=known[1],
    )


def _names(table: str) -> str:
    """Of all files that were named, without their folders."""
    return " ".join(Path(one).name for one in table.split(" "))


def calibration_report(fitted: FittedFactors) -> list[FittedTable | str]:
    """For the terminal: factors, errors before and after, and what the runs cannot determine."""
    calibration = fitted.calibration
    rows = []
    for name, factor in factors(calibration):
        note = "" if factor.determined else _("not told from others")
        rows.append(
            [name, f"{factor.factor:.2f}", _("{low:.2f} and {high:.2f}", low=factor.low, high=factor.high), note]
        )
    errors = [
        [metric, str(error.rows), f"{error.before:.1%}", f"{error.after:.1%}"]
        for metric, error in calibration.errors.items()
    ]
    return [
        FittedTable((_("factor on"), _("now"), _("95 % between"), ""), rows, frozenset({0, 3})),
        "",
        FittedTable((_("median error of"), _("runs"), _("before"), _("after")), errors),
        *_remarks(fitted),
    ]


def factors(calibration: Calibration) -> Iterator[tuple[str, Factor]]:
    """Every factor with its dotted name."""
    yield "compute_efficiency", calibration.compute_efficiency
    yield "memory_efficiency", calibration.memory_efficiency
    for kind, holders in (("engines", calibration.engines), ("links", calibration.links)):
        for holder, own in holders.items():
            for name in type(own).model_fields:
                yield f"{kind}.{holder}.{name}", getattr(own, name)


def _remarks(fitted: FittedFactors) -> Iterator[str]:
    calibration = fitted.calibration
    if unknown := [name for name, factor in factors(calibration) if not factor.determined]:
        yield _(
            "These runs do not tell {unknown} from the other factors: together they are right at these loads, and less "
            "surely elsewhere. Runs at other loads tell them apart.",
            unknown=", ".join(unknown),
        )
    if fitted.noise > WIDE_SCATTER and calibration.rows > 1:
        scatter = _("they scatter {noise:.1f} times as much as expected", noise=fitted.noise)
        yield _(
            "The runs contradict each other, or what can be simulated: {scatter}, and the intervals say so.",
            scatter=scatter,
        )
    for row, column, error in fitted.contradicting[:MOST_NAMED]:
        side = N_("{place}: simulated {column} stays {share:.0%} above the measured one")
        if error <= 0:
            side = N_("{place}: simulated {column} stays {share:.0%} below the measured one")
        yield _(side, place=_place(calibration, row), column=column, share=abs(error))
    if (more := len(fitted.contradicting) - MOST_NAMED) > 0:
        yield _("and {more} more that stay off", more=more)
    if fitted.skipped:
        yield _("Not used:")
        yield from told(fitted.skipped, calibration.table)


def _place(calibration: Calibration, row: BenchRow) -> str:
    """The row's line; a file that holds one row, or several that were read together, is told by the row's name."""
    return f"{calibration.table}:{row.line}" if row.line else row.id
