"""Watts of serving GPUs against the law of sim/power; fits the energies of an operation, a byte and an activation.

    python -m benchmarks.fit.power MEASURED [outputs/fit/left_out_power.csv]

Rows of serving.csv with power on A100, H100 and B200 whose models the catalogue has. A row's batch is taken as even:
so many decodes at the middle of their answers, with the prompt tokens that an even flow brings. The simulator says how
long such a step keeps the tensor cores at their peak and the memory reading; divided by the measured step that gives
the shares that the law asks for, so that errors of the step time stay out of the fit. ML.ENERGY publishes no prompt
lengths: 100 tokens are assumed for lm-arena-chat, 230 for gpqa, 150 (code 130) in version 2. Models in CHECKED are in
no fit.

Groups (source, GPU, model, GPUs, workload) weigh the same. Errors are medians over pairs of GPU and model family of the
median in each, at the measured step and at the simulator's own, which adds the error of the step time. The factors of
graphics cards are fitted last, to CARDS. benchmarks/fit/power_runs.py reads the rows.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, log2
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.fit.power_runs import Run, read_runs
from sim.catalogue.catalog import Catalog, load_catalog
from sim.power import GpuPower, LoadLaw, PowerCoefficients, load_power_coefficients
from sim.power.power import FULL_BITS, SHARPNESS

Floats = NDArray[np.float64]
Law = Callable[..., float]
"""(parameters, run, how many times faster than measured its steps are) -> power over the limit."""
Errors = dict[Run, float]


def capped(demand_w: float, run: Run, sharpness: float = SHARPNESS) -> float:
    """Power over the limit, of work that would take *demand_w* above idle."""
    z = max(0.0, demand_w) / (limit_w(run) * (1 - IDLE))
    return float(IDLE + (1 - IDLE) * z / (1 + z**sharpness) ** (1 / sharpness))


def demand_w(parameters: Sequence[float], run: Run, faster: float) -> float:
    """Watts of memory, operations and activations at steps so much *faster* than measured."""
    per_flop, per_byte, narrow, per_activation = parameters
    byte = run.memory * run.gpu.memory_bytes_per_s.value * (1 + narrow * run.narrow)
    flop, activation = run.compute * run.gpu.fp16_flops.value, run.activations * run.tokens_per_s
    return (per_flop * flop + per_byte * 100 * byte + per_activation * 1e4 * activation) * 1e-12 * faster


def by_energy(parameters: Sequence[float], run: Run, faster: float = 1.0) -> float:
    """The law: pJ per operation, 100 pJ per byte, more for narrow weights, 10 nJ per activation."""
    return capped(demand_w(parameters, run, faster), run)


def rounder(parameters: Sequence[float], run: Run, faster: float = 1.0) -> float:
    """The law with a rounder bend at the limit."""
    return capped(demand_w(parameters, run, faster), run, 2)


def sharper(parameters: Sequence[float], run: Run, faster: float = 1.0) -> float:
    """The law with a sharper bend at the limit."""
    return capped(demand_w(parameters, run, faster), run, 6)


def without_activations(parameters: Sequence[float], run: Run, faster: float = 1.0) -> float:
    """The law with operations and bytes alone."""
    return by_energy([*parameters, 0.0], run, faster)


def without_narrow(parameters: Sequence[float], run: Run, faster: float = 1.0) -> float:
    """The law with every byte alike."""
    return by_energy([*parameters[:2], 0.0, parameters[2]], run, faster)


def before(parameters: Sequence[float], run: Run, faster: float = 1.0) -> float:
    """The law until now: each doubling of a step's tokens adds to the energy of a byte, a round bend."""
    compute = parameters[0] * 1e-12 * run.gpu.fp16_flops.value * run.compute
    memory = parameters[1] * 1e-10 * run.gpu.memory_bytes_per_s.value * run.memory
    z = (compute + memory * (1 + parameters[2] * log2(run.tokens))) * faster / limit_w(run)
    return float(IDLE + (1 - IDLE) * z / (1 + z * z) ** 0.5)


def linear(parameters: Sequence[float], run: Run, faster: float = 1.0) -> float:
    """Linear in both shares."""
    return parameters[0] + (parameters[1] * run.compute + parameters[2] * run.memory) * faster


IDLE = load_power_coefficients(load_catalog().root / "power.yaml").loaded_idle.value
START = [0.8, 1.6, 0.5, 1.5]
LAWS: dict[str, tuple[Law, list[float]]] = {
    "energies": (by_energy, START),
    "rounder": (rounder, START),
    "sharper": (sharper, START),
    "no activations": (without_activations, START[:3]),
    "all bytes alike": (without_narrow, [0.8, 1.6, 1.5]),
    "before": (before, [2.0, 1.5, 0.2]),
    "linear": (linear, [0.3, 1.0, 0.4]),
}


@dataclass(frozen=True, slots=True)
class Card:
    """A run of a graphics card without a power cap that binds."""

    family: str
    gpu: str
    watts: float
    gigabytes_per_token: float
    tokens_per_s: float
    note: str


CARDS: tuple[Card, ...] = (
    Card("graphics-ampere", "rtx-3090", 334.0, 16.5, 34.66, "club-3090: Qwen3.6-27B, 4 bit, llama.cpp, one request"),
    Card("graphics-ada", "rtx-4090", 394.0, 16.5, 51.96, "club-3090: Qwen3.6-27B, 4 bit, llama.cpp, one request"),
    Card("graphics-ada", "rtx-4090", 246.6, 4.4, 138.0, "club-3090 issue 697: Qwen3-4B, fp8, vLLM, one request"),
)


def card_factors(parameters: Sequence[float], catalog: Catalog) -> dict[str, float]:
    """By family: the geometric mean over its cards of the factor that gives the card's watts."""
    found: dict[str, list[float]] = defaultdict(list)
    for card in CARDS:
        power = GpuPower.of(catalog.gpu(card.gpu), load_power_coefficients(catalog.root / "power.yaml"))
        assert power is not None
        load = (card.watts - power.idle_w) / (power.limit_w - power.idle_w)
        demanded_w = load / (1 - load**SHARPNESS) ** (1 / SHARPNESS) * (power.limit_w - power.idle_w)
        byte_w = parameters[1] * 1e-10 * (1 + parameters[2]) * card.gigabytes_per_token * 1e9 * card.tokens_per_s
        found[card.family].append(demanded_w / byte_w)
        print(f"{card.note}: {card.watts:g} W, factor {demanded_w / byte_w:.2f}")
    return {family: float(np.exp(np.mean(np.log(factors)))) for family, factors in found.items()}


def fitted(law: Law, start: list[float], runs: list[Run]) -> list[float]:
    """Least squares of log power, robust, each group of rows weighing the same."""
    sizes: dict[str, int] = defaultdict(int)
    for run in runs:
        sizes[run.group] += 1

    def residuals(theta: Floats, /) -> list[float]:
        parameters = [float(p) for p in theta]
        return [log(max(0.02, law(parameters, run)) / share(run)) / sizes[run.group] ** 0.5 for run in runs]

    return [float(p) for p in least_squares(residuals, start, loss="soft_l1", f_scale=0.2).x]


def limit_w(run: Run) -> float:
    """Power limit of the run's GPU."""
    assert run.gpu.tdp_w is not None
    return run.gpu.tdp_w.value


def share(run: Run) -> float:
    """Measured power over the limit."""
    return run.watts / limit_w(run)


def left_out(law: Law, start: list[float], runs: list[Run], key: Callable[[Run], str], own: bool = False) -> Errors:
    """Relative error of each run, predicted by a fit without those of its *key*; at the simulator's *own* step."""
    found: Errors = {}
    for out in {key(run) for run in runs}:
        parameters = fitted(law, start, [run for run in runs if key(run) != out and not run.checked])
        for run in runs:
            if key(run) == out:
                found[run] = law(parameters, run, run.slower if own else 1.0) / share(run) - 1
    return found


def summary(found: Errors) -> str:
    """Median and 90th percentile over pairs of their median absolute error, and the median signed one."""
    pairs: dict[str, list[float]] = defaultdict(list)
    for run, error in found.items():
        pairs[run.pair].append(error)
    medians = [float(np.median(np.abs(of))) for of in pairs.values()]
    signed = float(np.median([np.median(of) for of in pairs.values()]))
    return f"{np.median(medians):6.1%} {np.quantile(medians, 0.9):4.0%} {signed:+4.0%}"


KEYS: dict[str, Callable[[Run], str]] = {
    "pair": lambda run: run.pair,
    "GPU": lambda run: run.gpu.id,
    "source": lambda run: run.source,
}


def main() -> None:
    """Print the parameters and the errors of all laws, the factors of cards, then errors by source and GPU."""
    catalog = load_catalog()
    runs = list(read_runs(Path(sys.argv[1]), catalog))
    learnt = [run for run in runs if not run.checked]
    print(f"{len(learnt)} rows to fit, {len(runs)} in all, {len({run.pair for run in runs})} pairs; median, 90 %, bias")
    for name, (law, start) in LAWS.items():
        parameters = fitted(law, start, learnt)
        print(f"{name:15s} all {summary({run: law(parameters, run) / share(run) - 1 for run in runs})}", end="")
        for what, key in KEYS.items():
            print(f"; without its {what} {summary(left_out(law, start, runs, key))}", end="")
        checks = {run: law(parameters, run) / share(run) - 1 for run in runs if run.checked}
        print(f"; checks {summary(checks)}; simulated step {summary(left_out(law, start, runs, KEYS['pair'], True))}")
        print(" " * 15, " ".join(f"{p:.3g}" for p in parameters))
    for gpu in sorted({run.gpu.id for run in runs}):
        others = fitted(by_energy, START, [run for run in learnt if run.gpu.id != gpu])
        print(f"without {gpu}:", " ".join(f"{p:.3g}" for p in others))
    parameters = fitted(by_energy, START, learnt)
    for family, factor in card_factors(parameters, catalog).items():
        print(f"{family}: factor {factor:.2f}")
    coefficients = load_power_coefficients(catalog.root / "power.yaml")
    print("\ndata/power.yaml, with measured steps; with simulated ones")
    by_class: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_class[f"{run.source} {run.gpu.id}{' (check)' if run.checked else ''}"].append(run)
    for name, members in sorted(by_class.items()):
        law_errors = {run: in_watts(run, 1.0, coefficients) / run.watts - 1 for run in members}
        simulated = {run: in_watts(run, run.slower, coefficients) / run.watts - 1 for run in members}
        print(f"{name:38s} {len(members):4d} rows {summary(law_errors)}; {summary(simulated)}")
    if len(sys.argv) > 2:
        write_left_out(Path(sys.argv[2]), runs)


def write_left_out(path: Path, runs: list[Run]) -> None:
    """Errors at the simulator's own step with the pair or the GPU left out, as steptime.py writes those of times."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["scheme", "id", "metric", "measured", "predicted"])
        learnt = [run for run in runs if not run.checked]
        parameters = fitted(by_energy, START, learnt)
        schemes = {
            "in-sample": {run: by_energy(parameters, run, run.slower) / share(run) - 1 for run in learnt},
            "pairs": left_out(by_energy, START, runs, KEYS["pair"], True),
            "gpus": left_out(by_energy, START, runs, KEYS["GPU"], True),
        }
        for scheme, found in schemes.items():
            for run, error in found.items():
                writer.writerow([scheme, run.id, "power", f"{run.watts:.1f}", f"{run.watts * (1 + error):.1f}"])


def in_watts(run: Run, faster: float, coefficients: PowerCoefficients) -> float:
    """Power of the run by the simulator's own classes, its step so much *faster* than measured."""
    bits = 8.0 if run.narrow else FULL_BITS
    law = LoadLaw.of(run.gpu, coefficients, None, run.activations, bits)
    power = GpuPower.of(run.gpu, coefficients)
    assert law is not None
    assert power is not None
    return power.energy_j(1.0, law(run.compute * faster, run.memory * faster, run.tokens_per_s * faster))


if __name__ == "__main__":
    main()
