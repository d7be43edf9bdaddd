"""Tables of a job: results, where a step's time goes, memory, money."""

from collections.abc import Callable, Sequence
from typing import Any

from sim.language import N_, _
from sim.report.page.page import Table
from sim.report.words.money import cash, in_code
from sim.report.words.text import axis_label, percent, plain, short
from sim.report.work.bill import component_rows
from sim.study.work.job.columns import JobRow
from sim.study.work.job.step import parts
from sim.units import GB

Show = Callable[[Any], str]
RESULTS: tuple[tuple[str, str, Show], ...] = (
    ("gpus", "GPUs", str),
    ("step_s", N_("step [s]"), plain),
    ("mfu", N_("of the peak (MFU)"), percent),
    ("tokens_per_s", "tokens/s", plain),
    ("samples_per_s", "samples/s", plain),
    ("makespan_h", N_("time [h]"), plain),
    ("energy_kwh", N_("energy [kWh]"), plain),
    ("cost_usd", N_("cost"), cash),
    ("peak_memory_gb", N_("memory [GB]"), plain),
)
"""Column of summary.csv, heading, how a value is shown."""


def results(rows: Sequence[JobRow]) -> Table:
    """One row per fleet and point."""
    axes = list(rows[0].outcome.plan.axes)
    tokens = any(row.cells.get("tokens_per_s") is not None for row in rows)
    shown = [one for one in RESULTS if any(row.cells.get(one[0]) is not None for row in rows)]
    shown = [one for one in shown if one[0] != ("samples_per_s" if tokens else "tokens_per_s")]
    return Table(
        _("Results"),
        _("Times are expected values; the time of a step holds while nothing fails."),
        [_("fleet"), *map(axis_label, axes), *(in_code(_(head)) for _name, head, _show in shown), _("limited by")],
        [
            [
                row.fleet,
                *(short(row.outcome.plan.axes[axis]) for axis in axes),
                *("" if (value := row.cells.get(key)) is None else show(value) for key, _, show in shown),
                _(row.cells["limited_by"]) if row.ok else _("cannot run"),
            ]
            for row in rows
        ],
        worded=(len(axes) + len(shown) + 1,),
    )


def step_table(rows: Sequence[JobRow]) -> Table:
    """Share of a step by cause."""
    able = [row for row in rows if row.ok]
    found = [parts(row.outcome.plan.run.step) for row in able]
    causes = [cause for cause in found[0] if any(one[cause] > 5e-4 * sum(one.values()) for one in found)]
    return Table(
        _("Where the time of a step goes"),
        "",
        [_("cause"), *(_head(row) for row in able)],
        [[cause, *(percent(one[cause] / sum(one.values())) for one in found)] for cause in causes],
    )


MEMORY = {
    "weights_bytes": N_("weights"),
    "gradients_bytes": N_("gradients"),
    "states_bytes": N_("optimizer states"),
    "activations_bytes": N_("activations"),
    "logits_bytes": N_("logits"),
    "reserve_bytes": N_("reserve"),
    "total_bytes": N_("total"),
}


def memory_table(rows: Sequence[JobRow]) -> Table:
    """What fills the memory of the fullest GPU."""
    body = [
        [words, *(plain(getattr(row.outcome.plan.run.bound.memory, field) / GB) for row in rows)]
        for field, words in MEMORY.items()
    ]
    body.append([_("the GPU has"), *(plain(row.cells["memory_gb"]) for row in rows)])
    return Table(_("Memory of the fullest GPU [GB]"), "", [_("part"), *map(_head, rows)], body)


def layout_table(rows: Sequence[JobRow]) -> Table:
    """How the job is spread."""
    keys = ("gpus", "servers", "dp", "tp", "pp", "zero", "recompute", "micro_batch", "precision", "framework")
    return Table(
        "Layout",
        _("dp, tp, pp: data-, tensor- and pipeline-parallel ranks; zero: ZeRO stage; micro_batch: samples at once"),
        ["fleet", *(key.replace("_", " ") for key in keys)],
        [[_head(row), *(str(row.cells[key]) for key in keys)] for row in rows],
    )


def cost_table(rows: Sequence[JobRow]) -> Table | None:
    """The bill by component; None where nothing has a cost."""
    priced = [row for row in rows if row.outcome.ledger is not None]
    if not priced:
        return None
    body = component_rows([row.outcome.ledger for row in priced if row.outcome.ledger is not None])
    body.append([_("total"), *(cash(row.cells["cost_usd"]) for row in priced)])
    return Table(_("What the job costs"), "", [_("component"), *map(_head, priced)], body)


def tables(rows: Sequence[JobRow], most: int = 12) -> list[Table]:
    """All tables; those with a column per row show the first *most* rows only."""
    few = rows[:most]
    found = [results(rows)]
    if any(row.ok for row in few):
        found.append(step_table(few))
    found += [memory_table(few), layout_table(few)]
    bill = cost_table(few)
    return [*found, bill] if bill is not None else found


def _head(row: JobRow) -> str:
    at = ", ".join(f"{axis} {short(value)}" for axis, value in row.outcome.plan.axes.items())
    return f"{row.fleet}, {at}" if at else row.fleet
