"""Resale curves of GPUs, fitted to dated second-hand quotes: data/resale.yaml, and a table of benchmarks/money.md.

    PYTHONPATH=. python benchmarks/fit/resale.py [--write data]

A curve loses a constant fraction of its value per year. Its logarithm is fitted by least squares, through the price
when new, to the used quotes of one GPU in data/resale.csv; a fitted rise is written as no loss. The curve `all` has the
median loss of these GPUs. Errors are those of quotes left out, as a fraction of the price when new: with the curve of
the GPU's other quotes, and with the median loss of the other GPUs.
"""

import argparse
import csv
from collections.abc import Sequence
from datetime import date
from math import exp, log
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from sim.catalogue.data_folder import data_root

DAYS_PER_YEAR = 365.25
LEAST_YEARS = 1.0
"""Least age of the quotes that the range of a curve covers."""
HEAD = "| GPU | Used quotes | Ages [years] | Loss a year | Error with own other quotes | Error with other GPUs |"


class UsedQuote(NamedTuple):
    """Price of used hardware, over its price when new."""

    years: float
    fraction: float
    source: str

    @property
    def loss(self) -> float:
        """Loss per year that this quote alone implies."""
        return 1 - self.fraction ** (1 / self.years)

    def error(self, loss: float) -> float:
        """Return the predicted value less the quoted one, at a *loss* per year."""
        return float((1 - loss) ** self.years - self.fraction)


def quotes(path: Path) -> dict[str, list[UsedQuote]]:
    """Return GPU -> its used quotes in the file *path*."""
    new: dict[str, tuple[date, float]] = {}
    found: dict[str, list[UsedQuote]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            day, price = date.fromisoformat(row["as_of"]), float(row["price_usd"])
            if row["condition"] == "new":
                new[row["gpu"]] = day, price
                continue
            first, paid = new[row["gpu"]]
            years = (day - first).days / DAYS_PER_YEAR
            found.setdefault(row["gpu"], []).append(UsedQuote(years, price / paid, row["source"]))
    return found


def fitted_loss(used: Sequence[UsedQuote]) -> float:
    """Return the loss per year of the curve through *used*; 0 where prices rise."""
    slope = sum(one.years * log(one.fraction) for one in used) / sum(one.years**2 for one in used)
    return max(0.0, 1 - exp(slope))


def errors(found: dict[str, list[UsedQuote]]) -> dict[str, tuple[float | None, float]]:
    """Return GPU -> mean absolute error of quotes left out: with the GPU's other quotes, with the other GPUs."""
    losses = {gpu: fitted_loss(used) for gpu, used in found.items()}
    result = {}
    for gpu, used in found.items():
        own = [one.error(fitted_loss([*used[:i], *used[i + 1 :]])) for i, one in enumerate(used) if len(used) > 1]
        others = median(loss for name, loss in losses.items() if name != gpu)
        result[gpu] = (mean(map(abs, own)) if own else None, mean(abs(one.error(others)) for one in used))
    return result


def table(found: dict[str, list[UsedQuote]]) -> list[str]:
    """Return the lines of the table."""
    lines = [HEAD, "| --- | --- | --- | --- | --- | --- |"]
    wrong = errors(found)
    for gpu, used in found.items():
        own, others = wrong[gpu]
        ages = f"{min(one.years for one in used):.1f} to {max(one.years for one in used):.1f}"
        ages = " to ".join(dict.fromkeys(ages.split(" to ")))
        shown = "" if own is None else f"{100 * own:.0f} %"
        lines.append(
            f"| {gpu} | {len(used)} | {ages} | {100 * fitted_loss(used):.0f} % | {shown} | {100 * others:.0f} % |"
        )
    known = [own for own, _ in wrong.values() if own is not None]
    count, whole = sum(map(len, found.values())), median(fitted_loss(used) for used in found.values())
    means = f"{100 * mean(known):.0f} % | {100 * mean(others for _, others in wrong.values()):.0f} %"
    return [*lines, f"| all (median; means of the errors) | {count} | | {100 * whole:.0f} % | {means} |"]


def entries(found: dict[str, list[UsedQuote]]) -> list[str]:
    """Return the lines of data/resale.yaml."""
    lines = [
        "# Loss of resale value per year, fitted to data/resale.csv: `finance: {resale: {curve: <id>}}`.",
        "# Of hardware bought new near the launch of its model; nothing uses a curve unless a scenario names it.",
        "curves:",
    ]
    losses = {gpu: fitted_loss(used) for gpu, used in found.items()}
    for gpu, used in found.items():
        single = [min(1.0, max(0.0, one.loss)) for one in used if one.years >= LEAST_YEARS]
        source = max({one.source: 0 for one in used}, key=lambda name: sum(one.source == name for one in used))
        where = f"benchmarks/fit/resale.py: {len(used)} used quotes up to {max(one.years for one in used):.1f} years"
        lines += _entry(gpu, losses[gpu], [*single, losses[gpu]], source, where)
    return lines + _entry("all", median(losses.values()), list(losses.values()), "coinpoet",
                          f"benchmarks/fit/resale.py: median of {len(losses)} GPUs")  # fmt: skip


def _entry(name: str, loss: float, spread: Sequence[float], source: str, where: str) -> list[str]:
    low, high = round(min(spread), 3), round(max(spread), 3)
    value = f"{{value: {loss:.3f}, range: [{low}, {high}], source: {source}, kind: fitted,"
    return [f"  {name}:", f"    loss_per_year: {value}", f'      where: "{where}"}}']


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="DATA", help="folder in which resale.yaml is written")
    folder = parser.parse_args().write
    known = quotes((folder or data_root()) / "resale.csv")
    if folder:
        (folder / "resale.yaml").write_text("\n".join(entries(known)) + "\n", encoding="utf-8")
    print("\n".join(table(known)))
