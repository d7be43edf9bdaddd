"""Numbers, places and names as text.

Numbers with their units, points of a sweep, lists; and the names that the program counts by (components of cost,
states, causes), declared for the catalogues of languages. In files and in code such a name is an id (`gpu_capital`);
`readable_name` makes it readable.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from sim.language import ENGLISH, N_, _, current
from sim.scenario.experiment import Experiment

AXIS_LABELS = {
    "rate_rps": N_("load [requests/s]"),
    "concurrency": N_("concurrent clients"),
    "rate_scale": N_("trace speed-up"),
    "load_scale": N_("load over the scenario's"),
    "replicas": N_("replicas"),
}
AXIS_UNITS = {
    "rate_rps": N_("{} req/s"),
    "concurrency": N_("{} clients"),
    "rate_scale": N_("{}x the trace's speed"),
    "load_scale": N_("{}x the scenario's load"),
    "replicas": N_("{} replicas"),
}
LIMITS = {
    "kv": N_("KV memory"),
    "seats": N_("concurrent sequences (max_num_seqs)"),
    "token budget": N_("token budget (max_num_batched_tokens; SGLang: chunked_prefill_size)"),
    "adapter slots": N_("adapter slots (max_loras)"),
    "kv transfer": N_("the ports that carry KV"),
    "api server": N_("the API server, which reads requests one by one"),
    "load": N_("the load alone"),
    "memory": N_("memory bandwidth"),
    "compute": N_("compute"),
    "link": N_("the link between GPUs"),
    "attention": N_("attention"),
    "overhead": N_("host overhead"),
    "host": N_("weights in host memory"),
}


def plain(value: float, digits: int = 3) -> str:
    """Format *value* with *digits* significant digits, without an exponent: 0.000123, 1.92, 12,300."""
    if not isfinite(value):
        return "inf" if value > 0 else "-inf" if value < 0 else ""
    if value == 0:
        return "0"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    text = f"{float(f'{value:.{digits}g}'):.12f}".rstrip("0").rstrip(".")
    return text if text not in ("", "-0") else f"{value:.{digits}g}"


def steady(value: float, digits: int = 3) -> str:
    """Format *value* with *digits* significant digits, trailing zeros included: 1.90, 0.0450."""
    if not isfinite(value) or value == 0 or abs(value) >= 10**digits:
        return plain(value, digits)
    return f"{value:#.{digits}g}".rstrip(".") if abs(value) >= 1e-4 else plain(value, digits)


def spread(half: float, value: float) -> str:
    """Format the half-width of an interval with two digits; empty below a thousandth of *value*."""
    return plain(half, 2) if half >= 1e-3 * abs(value) and isfinite(half) else ""


def seconds(value: float, digits: int = 3) -> str:
    """Format a duration, in ms below a tenth of a second."""
    if not isfinite(value):
        return "inf"
    return f"{steady(1e3 * value, digits)} ms" if 0 < value < 0.1 else f"{steady(value, digits)} s"


def percent(fraction: float) -> str:
    """Format a fraction in percent; a fraction below 1 never reads 100 %."""
    shown = 100 * fraction
    if 99.95 <= shown < 100:
        return "99.9\u00a0%" if shown < 99.995 else ">99.99\u00a0%"
    digits = 1 if 0 < shown < 10 or 99 < shown < 100 else 0
    # turns -0 into 0
    return f"{round(shown, digits) + 0.0:.{digits}f}\u00a0%"


def difference(fraction: float) -> str:
    """Format a relative difference in percent; one other than zero never reads 0 %: 0.012 %, 4.5 %, 109 %."""
    return percent(fraction) if not 0 < abs(fraction) < 5e-4 else f"{plain(100 * fraction, 2)}\u00a0%"


def axis_label(axis: str) -> str:
    """Return the label of a sweep axis, for the edge of a chart or the heading of a column."""
    return _(AXIS_LABELS.get(axis, axis))


def short(value: Any) -> str:
    """Format a sweep value: a number without needless digits, any other value as `str` does."""
    return plain(value, 6) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def place(axis: str, value: Any) -> str:
    """Format a value of a sweep axis for a sentence: `2 req/s`, `gpu_memory_utilization 0.9`."""
    return _with_unit(axis, short(value))


def places(setting: Sequence[tuple[str, Any]]) -> str:
    """Format the values of several axes: `2 req/s, cv 4`; empty for none."""
    return commas(place(axis, value) for axis, value in setting)


def span(axis: str, chosen: Sequence[Any], everything: Sequence[Any]) -> str:
    """Format the *chosen* values among all, neighbours joined: `0.25 to 2 req/s`, `1 and 4 to 8 req/s`.

    Both sequences are in the order of the axis.
    """
    runs: list[list[Any]] = []
    for before, value in zip([None, *everything], everything, strict=False):
        if value in chosen:
            if runs and runs[-1][-1] == before:
                runs[-1].append(value)
            else:
                runs.append([value])
    return _with_unit(axis, listing([ranged(short(run[0]), short(run[-1])) for run in runs]))


def listing(items: Sequence[str]) -> str:
    """Join *items* with commas and "and": A, B and C."""
    if len(items) < 2:
        return "".join(items)
    return _("{others} and {last}", others=commas(items[:-1]), last=items[-1])


def commas(items: Iterable[str]) -> str:
    """Join *items* with commas: A, B, C."""
    return _(", ").join(items)


def ranged(low: str, high: str) -> str:
    """Format a range, `1 to 4`; a single number where both ends are equal."""
    return low if low == high else _("{low} to {high}", low=low, high=high)


def replicas_of(pool: Mapping[str, Any], gpus_each: float = 1) -> str:
    """Return the replicas of a described *pool*, or their GPUs by *gpus_each*: `4`, autoscaled `1 to 4`."""
    scaler = pool.get("autoscaling")
    ends = (pool["replicas"],) if scaler is None else (scaler["min_replicas"], scaler["max_replicas"])
    return ranged(*(f"{end * gpus_each:g}" for end in (ends[0], ends[-1])))


def joined(sentences: Iterable[str]) -> str:
    """Join *sentences* with spaces, empty ones left out."""
    return " ".join(sentence for sentence in sentences if sentence).replace("。 ", "。")


def _with_unit(axis: str, text: str) -> str:
    return _(AXIS_UNITS[axis]).format(text) if axis in AXIS_UNITS else f"{axis} {text}"


def first_sentence(text: str) -> tuple[str, str]:
    """Split *text* into its question (or first sentence) and the rest."""
    ends = [at for mark in ("? ", ". ") if (at := text.find(mark)) >= 0]
    end = (text.find("? ") if "? " in text else min(ends)) + 1 if ends else len(text)
    return text[:end].strip(), text[end:].strip()


def question_and_context(question: str, name: str) -> tuple[str, str]:
    """Split the stored question of the scenario *name* into one sentence and the rest; without any: its name.

    The words between the name and values from --set are in the reader's language.
    """
    start = f"{name} with "
    if question.startswith(start):
        return _("{name} with {changes}", name=name, changes=question.removeprefix(start)), ""
    return first_sentence(question or name)


def question_of(scenario: Experiment) -> str:
    """Return the question of *scenario* in one sentence; its name if it states no question."""
    return question_and_context(scenario.question, scenario.name)[0]


def number(value: Any) -> str:
    """Format a value of a table: booleans as yes and no, very large and very small numbers with an exponent."""
    if value is None or isinstance(value, bool):
        return "" if value is None else _("yes") if value else _("no")
    if not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or value.is_integer():
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.6g}"
    return plain(value, 6) if abs(value) >= 1e-3 else f"{value:.6g}"


COMPONENTS = (
    *(N_("GPU capital"), N_("server capital"), N_("rent"), N_("rental"), N_("commitment"), N_("unused commitment")),
    *(N_("prepayment"), N_("take or pay"), N_("payment terms")),
    *(N_("energy"), N_("electricity"), N_("demand"), N_("power contract"), N_("hosting"), N_("carbon")),
    N_("carbon price"),
)
"""Components of the bill, except those of `operations`, whose names are the keys of that section."""
PHASES = (N_("booting"), N_("prefill"), N_("decode"), N_("recompute"), N_("idle"), N_("serving"))
CAUSES = (N_("compute"), N_("memory"), N_("attention"), N_("link"), N_("host"), N_("overhead"), N_("load"))
"""Causes of step time."""
MESSAGES = {
    "all-reduce": (N_("all-reduce, NCCL or its like"), N_("all-reduce, the engine's own kernel")),
    "experts": (N_("tokens to the experts of other ranks and back"),),
    "stage": (N_("to the next stage"),),
}
"""Messages between GPUs by kind; all-reduces by implementation."""
STATES = (N_("met"), N_("missed"), N_("ok"), N_("infeasible"), N_("finished"), N_("rejected"), N_("unfinished"))
KINDS = (
    *(N_("datasheet"), N_("quoted"), N_("measured"), N_("computed"), N_("fitted"), N_("assumed"), N_("recalled")),
    *(N_("given"), N_("the scenario's own figure")),
)
"""Kinds of sourced values, and the note on given ones."""
PAID = (N_("at delivery"), N_("in service"), N_("switched on"), N_("metered"), N_("at the end"))
"""Times of payments."""
OWNER = (N_("network and storage"), N_("failures"), N_("VAT"))
"""Cost items, besides components, that a bill may leave out."""
NOTHING = (N_("nothing"), N_("a list"), N_("a mapping"))
"""Kinds of empty or nested values in error messages."""
COUNTED = (N_("searches"), N_("counterfactual fleets"), N_("cases"))
"""Units of progress."""
FITS = (N_("fits at {names}"), N_("fits at {names}, or {other}"), N_("fits on {other}"))
"""Remedies where a model does not fit."""
POLICIES = (N_("round robin"), N_("least outstanding"), N_("power of two"), N_("random"), N_("by length"))
INPUTS = (
    *(N_("electricity"), N_("hosting"), N_("rent of a rack"), N_("discount rate"), N_("life"), N_("residual value")),
    N_("load"),
    *(N_("memory bandwidth"), N_("compute"), N_("memory size"), N_("link"), N_("power"), N_("utilisation")),
    *(N_("years"), N_("per year"), N_("of the price"), N_("of today's")),
)
"""Inputs that `sensitivity` and `breakeven` vary, and their units."""
UNITS = (N_("image"), N_("sample"), N_("sequence"), N_("utterance"), N_("volume"), N_("query"), N_("unit"))
"""Units of work of services that answer in one pass."""


def readable_name(name: str) -> str:
    """Return a readable name of an id: `gpu_capital` becomes GPU capital."""
    return _(name.replace("_", " ").replace("gpu", "GPU").replace("usd", "USD"))


BOUNDARY = r"(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9$¥])|(?<=[A-Za-z0-9%])(?=[\u4e00-\u9fff])"
"""Pattern of the boundary between Chinese and Latin text, which a space marks; compiled at the first use."""
BESIDE_MARKS = r" +(?=[（），。；：、])|(?<=[（），。；：、]) +"
"""Pattern of space beside Chinese punctuation, which is wide enough without."""


def spaced(text: str) -> str:
    """Return *text*, a sentence composed in the shown language, spaced as Chinese is; other languages as they are.

    >>> spaced("At 2 req/s, A is cheaper")
    'At 2 req/s, A is cheaper'
    """
    return text if current() == ENGLISH else re.sub(BESIDE_MARKS, "", re.sub(BOUNDARY, " ", text))
