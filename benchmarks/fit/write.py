"""Output of fitted figures to data/: the `overheads` of engines, kernels' factors, data/steptime.yaml."""

import re
from collections.abc import Mapping
from pathlib import Path

from parameters import (
    AT_MOST_ONE,
    COEFFICIENTS,
    EXPERTS,
    EXPERTS_IN,
    FAMILIES,
    KERNELS,
    LAUNCHES,
    OVERHEADS,
    SHARED_KERNELS,
    SHARED_LAUNCHES,
    SHARED_OVERHEADS,
    Priors,
)

from sim.catalogue.engine import family_of

NEARLY_ONE = 0.98
"""Smallest fraction that is treated as 1."""
WHERE = "benchmarks/fit/steptime.py on serving rows"
SAME_CHIP = {"mi325x": ("mi300x", 785 / 668)}
"""GPUs without rows, with one of the same chip that has rows, and the ratio of their best 16-bit products."""


def write_data(
    data: Path, priors: Priors, theta: Mapping[str, float], ranges: Mapping[str, tuple[float, float]], spread: float
) -> None:
    """Replace every fitted figure under *data*, and nothing else."""
    entry = _Entries(priors, theta, ranges)
    for path in sorted((data / "engines").glob("*.yaml")):
        _write_engine(path, entry)
    for path in sorted((data / "kernels").glob("*.yaml")):
        _write_kernel(path, entry)
    _write_coefficients(data / "steptime.yaml", entry, spread)


class _Entries:
    """Parameter values as YAML with their sources."""

    def __init__(self, priors: Priors, theta: Mapping[str, float], ranges: Mapping[str, tuple[float, float]]) -> None:
        self.priors, self.theta, self.ranges = priors, theta, ranges

    def of(self, name: str, note: str = "") -> str:
        """Return `{value: ..., range: ..., source: ..., where: ..., kind: ...}` of a parameter."""
        value, *ends = self.ends(name)
        informed = name in self.ranges and self.priors.width(name) > 0
        kind, where = ("fitted", WHERE) if informed else ("assumed", "benchmarks/fit/priors.yaml; no row tells it")
        spread = "" if ends[0] == ends[-1] else f"range: [{_short(ends[0], value)}, {_short(ends[-1], value)}], "
        if not spread:
            kind, where = "fitted", "the reference that the other factors are relative to"
        extra = f', note: "{note}"' if note else ""
        return f'{{value: {value:.4g}, {spread}source: gpufleet-study, where: "{where}", kind: {kind}{extra}}}'

    def ends(self, name: str) -> tuple[float, float, float]:
        """Return value, lower end and upper end of a parameter."""
        value, width = self.priors.value(name, self.theta), self.priors.width(name)
        both = (self.priors.value(name, {name: end}) for end in self.ranges.get(name, (-width, width)))
        low, _, high = sorted((*both, value))
        return value, low, high

    def is_written(self, name: str) -> bool:
        """Return whether the value must be written; a fraction of 1 is the default."""
        return name.split(":")[0] not in AT_MOST_ONE or self.priors.value(name, self.theta) < NEARLY_ONE

    def known(self, name: str) -> bool:
        """Return whether the fit determines the parameter."""
        return self.priors.known(name)


def _short(end: float, value: float) -> str:
    """Return an end of a range, rounded so that it does not pass the value."""
    rounded = float(f"{end:.3g}")
    at = float(f"{value:.4g}")
    return f"{at:.4g}" if (end <= value and rounded > at) or (end >= value and rounded < at) else f"{rounded:.4g}"


def _write_engine(path: Path, entry: _Entries) -> None:
    engine = path.stem
    if not entry.known(f"per_layer:{engine}"):
        return
    lines = {field: entry.of(f"{what}:{engine}") for what, field in OVERHEADS.items()}
    lines |= {field: entry.of(what) for what, field in SHARED_OVERHEADS.items()}
    lines |= {field: entry.of(f"{what}:{family_of(engine)}") for what, field in FAMILIES.items()}
    launches = {
        field: entry.of(f"{what}:{engine}") for what, field in LAUNCHES.items() if entry.known(f"{what}:{engine}")
    }
    if launches:
        launches |= {field: entry.of(what) for what, field in SHARED_LAUNCHES.items()}
    order = (
        "per_layer_s", "per_step_s", "per_sequence_s", "per_sequence_in_process_s",
        "per_request_s", "moe_request_factor", "mla_layer_factor", *SHARED_OVERHEADS.values(), "kv_read_time_factor",
        *FAMILIES.values(), "moe_gemm_time_factor",
    )  # fmt: skip
    text = path.read_text(encoding="utf-8")
    lines |= launches
    written = "".join(f"  {field}: {lines[field]}\n" for field in (*order, *launches))
    start = f"{EXPERTS_IN}:{engine}/"
    if formats := [name for name in entry.priors.values if name.startswith(start)]:
        table = "".join(f"    {name.removeprefix(start)}: {entry.of(name)}\n" for name in formats)
        lines["experts_by_kernel"] = table
        written += f"  experts_by_kernel:\n{table}"

    def fitted_and_held(found: re.Match[str]) -> str:
        entries = re.finditer(r"^  (\w+):.*\n(?:   .*\n)*", found[0], flags=re.MULTILINE)
        return "overheads:\n" + written + "".join(entry[0] for entry in entries if entry[1] not in lines)

    path.write_text(re.sub(r"^overheads:\n(?:[ #].*\n)+", fitted_and_held, text, flags=re.MULTILINE), encoding="utf-8")


def _write_kernel(path: Path, entry: _Entries) -> None:
    text = path.read_text(encoding="utf-8")
    names = {f"{what}:{path.stem}": field for what, field in KERNELS.items()} | SHARED_KERNELS
    for name, field in names.items():
        if entry.known(name):
            text = _replaced(text, field, entry.of(name))
    path.write_text(text, encoding="utf-8")


def _write_coefficients(path: Path, entry: _Entries, spread: float) -> None:
    text = path.read_text(encoding="utf-8")
    hosts = f'{{value: {spread:.2g}, source: gpufleet-study, where: "{WHERE}: hosts of campaigns", kind: fitted}}'
    for what, field in EXPERTS.items():
        names = [name for name in entry.priors.values if name.startswith(f"{what}:") and entry.is_written(name)]
        table = "".join(f"  {name.partition(':')[2]}: {entry.of(name)}\n" for name in names)
        pattern = rf"^({field}:.*\n)(?:  .*\n)+"
        text = re.sub(pattern, lambda found, table=table: f"{found[1]}{table}", text, flags=re.MULTILINE)  # type: ignore[misc]
    text = _replaced(text, "host_time_spread", hosts)
    for name, field in COEFFICIENTS.items():
        text = _replaced(text, field, entry.of(name))
    gpus = sorted(name.split(":")[1] for name in entry.priors.values if name.startswith("compute:"))
    for gpu in gpus:
        block = f"  {gpu}:\n    compute: {entry.of(f'compute:{gpu}')}\n    memory: {entry.of(f'memory:{gpu}')}\n"
        pattern = rf"^  {re.escape(gpu)}:\n(?:    .*\n)+"
        if re.search(pattern, text, flags=re.MULTILINE):
            text = re.sub(pattern, lambda _, block=block: block, text, flags=re.MULTILINE)  # type: ignore[misc]
        else:
            text = text.replace("architectures:\n", f"{block}architectures:\n", 1)
    for card, (similar, ratio) in SAME_CHIP.items():
        value, low, high = (ratio * one for one in entry.ends(f"compute:{similar}"))
        where = f"{similar}'s, which serving rows tell, times {ratio:.3f}: the best 16-bit products of both, aiter.py"
        line = f'{{value: {value:.3g}, range: [{low:.3g}, {high:.3g}], source: stas, where: "{where}", kind: computed}}'
        text = re.sub(rf"(?<=^  {card}:\n    compute: ).*", lambda _, line=line: line, text, flags=re.MULTILINE)  # type: ignore[misc]
    head, rules = text.split("allreduce_time_factors:", 1)
    parts = re.split(r"(factor: \{(?:[^{}]|\n)*?\})", rules)
    for i in range(1, len(parts), 2):
        note = re.search(r'note: ("[^"]*")', parts[i])
        parts[i] = "factor: " + entry.of(f"allreduce:{i // 2}", note[1][1:-1] if note else "")
    path.write_text(f"{head}allreduce_time_factors:{''.join(parts)}", encoding="utf-8")


def _replaced(text: str, field: str, entry: str) -> str:
    """Return *text* with the mapping of a top-level *field* replaced, over all its lines.

    An assumption is kept, and a figure of another source.
    """
    return re.sub(
        rf"^{field}: \{{(?![^{{}}]*assumption)[^{{}}]*source: gpufleet-study[^{{}}]*\}}",
        lambda _: f"{field}: {entry}",
        text,
        flags=re.MULTILINE,
    )
