"""Fit of the power law of sim/power to measured power of serving GPUs, and of the running power of GPUs.

    python -m benchmarks.fit.power MEASURED [outputs/fit/left_out_power.csv]

Uses rows of serving.csv with power on A100, H100 and B200 whose models are in the catalogue. A row's batch is assumed
even: decodes at the middle of their answers, with the prompt tokens of an even flow. The simulator gives the times at
the tensor cores' peak and at full memory bandwidth in such a step; divided by the measured step they are the fractions
that the law needs. ML.ENERGY publishes no prompt lengths: 100 tokens are assumed for lm-arena-chat, 230 for gpqa, 150
(code 130) in version 2. Models in CHECKED are not fitted. power_cards.csv holds graphics cards.

Errors are medians and means over pairs of GPU and model family of the pair's median, at the measured and at the
simulated step time. power_fit.py has the laws, power_runs.py reads the rows.
"""

import csv
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from benchmarks.fit.power_fit import (
    LAWS,
    START,
    Errors,
    Table,
    adopted_law,
    by_gpu,
    by_pair,
    by_source,
    card_errors,
    errors,
    families,
    fitted,
    left_out,
    summary,
)
from benchmarks.fit.power_runs import Run, read_cards, read_runs
from sim.catalogue.catalog import load_catalog
from sim.power import GpuPower, PowerCoefficients, load_law, load_power_coefficients

NAMES = ("computing", "per_byte_j / 100 pJ", "narrow_weights", "per_activation_j / 10 nJ", "running")


def main() -> None:
    """Print the parameters and errors of all laws, the families of graphics cards, and errors by source and GPU."""
    catalog = load_catalog()
    coefficients = load_power_coefficients(catalog.root / "power.yaml")
    table = Table(tuple(read_runs(Path(sys.argv[1]), catalog)), coefficients)
    cards = Table(tuple(read_cards(catalog)), coefficients)
    learnt = table.of(lambda run: not run.checked)
    print(f"{len(learnt)} rows to fit, {len(table)} in all, {len({run.pair for run in table.runs})} pairs")
    print("median, mean, 90 %, bias of each: at the measured step; at the simulator's")
    keys = {"pair": by_pair, "GPU": by_gpu, "source": by_source}
    own_steps: dict[str, Errors] = {}
    for name, (law, start) in LAWS.items():
        parameters = fitted(law, start, learnt)
        print(f"{name:16s} all {summary(errors(law, parameters, table))}", end="")
        for what, key in keys.items():
            measured, simulated = left_out(law, start, table, key)
            if law is adopted_law:
                own_steps[what] = simulated
            print(f" | without its {what} {summary(measured)}; {summary(simulated)}", end="")
        checks = table.of(lambda run: run.checked)
        seen = [summary(errors(law, parameters, replace(checks, simulated=simulated))) for simulated in (False, True)]
        print(f" | checks {'; '.join(seen)}")
        print(" " * 16, " ".join(f"{p:.3g}" for p in parameters))
    parameters = fitted(adopted_law, START, learnt)
    others = [
        fitted(adopted_law, START, learnt.of(lambda run, key=key, out=out: key(run) != out))  # type: ignore[misc]
        for key in (by_gpu, by_source)
        for out in sorted({key(run) for run in learnt.runs})
    ]
    for name, value, found in zip(NAMES, parameters, zip(*others, strict=True), strict=True):
        print(f"{name}: {value:.3g} [{min(found):.3g}, {max(found):.3g}]")
    print(
        " ".join(
            f"{name}: {value:.3g}"
            for name, value in families(parameters[:4], cards.of(lambda run: not run.checked)).items()
        )
    )
    print("cards: all; without the card, at both steps")
    for key in (None, by_gpu):
        for found_errors in card_errors(parameters[:4], cards, key):
            print(summary(found_errors), " ".join(f"{error:+.0%}" for error in found_errors.values()))
    print_by_source([*table.runs, *cards.runs], coefficients)
    if len(sys.argv) > 2:
        write_left_out(Path(sys.argv[2]), table, cards, own_steps)


def print_by_source(runs: list[Run], coefficients: PowerCoefficients) -> None:
    """Print the errors of the law with the simulator's figures."""
    print("\ndata/power.yaml, with measured steps; with simulated ones")
    by_class: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        source = run.source if run.source in ("mlenergy_v2", "mlenergy_v3", "argonne_power") else "cards"
        by_class[f"{source} {run.gpu.id}{' (check)' if run.checked else ''}"].append(run)
    for name, members in sorted(by_class.items()):
        law_errors = {run: in_watts(run, 1.0, coefficients) / run.watts - 1 for run in members}
        simulated = {run: in_watts(run, run.slower, coefficients) / run.watts - 1 for run in members}
        print(f"{name:38s} {len(members):4d} rows {summary(law_errors)}; {summary(simulated)}")


def write_left_out(path: Path, table: Table, cards: Table, without: dict[str, Errors]) -> None:
    """Write the errors at the simulated step time without pair, GPU or campaign, in the form of steptime.py."""
    cards, learnt = cards.of(lambda run: not run.checked), table.of(lambda run: not run.checked)
    parameters = fitted(adopted_law, START, learnt)
    own = Table(learnt.runs, table.coefficients, simulated=True)
    schemes: dict[str, Errors] = {
        "in-sample": errors(adopted_law, parameters, own) | card_errors(parameters[:4], cards, None)[1],
        "pairs": without["pair"] | card_errors(parameters[:4], cards, by_pair)[1],
        "gpus": without["GPU"] | card_errors(parameters[:4], cards, by_gpu)[1],
        "campaigns": without["source"] | card_errors(parameters[:4], cards, by_source)[1],
    }
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["scheme", "id", "metric", "measured", "predicted"])
        for scheme, found in schemes.items():
            for run, error in found.items():
                writer.writerow([scheme, run.id, "power", f"{run.watts:.1f}", f"{run.watts * (1 + error):.1f}"])


def in_watts(run: Run, faster: float, coefficients: PowerCoefficients) -> float:
    """Return the power of the run by the simulator's own classes, with a step shorter by the factor *faster* [W]."""
    law = load_law(run.gpu, coefficients, None, run.activations, run.narrow)
    power = GpuPower.of(run.gpu, coefficients)
    assert law is not None
    assert power is not None
    busy, linked = min(1.0, run.busy * run.slower), run.linked * run.slower
    own = law.load(run.compute * faster, run.memory * faster, run.tokens_per_s * faster, busy, linked)
    return power.energy_j(1.0, (own + (run.turns - 1) * law.load(0.0, 0.0, 0.0, 1.0, 1.0)) / run.turns)


if __name__ == "__main__":
    main()
