"""Power laws and their fits to runs with measured power: the method of power.py.

Runs are fitted at their measured step time, so that errors of the step-time model have no effect. Groups (source, GPU,
model, GPUs, workload) have the same weight. Families of graphics cards are fitted last, with all other figures fixed;
the prior standard deviation between families is WIDTH.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.fit.power_runs import Run
from sim.power import GpuPower, PowerCoefficients
from sim.records import SHARPNESS

Floats = NDArray[np.float64]
COMPUTING, COMPUTING_WIDTH = 0.8, 0.2
"""Prior and width of the computing share.

Arithmetic limits few rows: large products reach about 0.75 of the peak and bring a GPU to its power limit.
"""
NARROW, NARROW_WIDTH = 1.0, 1.0
"""Prior and width of the cost of unpacking narrow weights, which two models on one kind of GPU each determine."""
PRIOR_WEIGHT = 0.3
"""Residual of a prior that is missed by its width; a run's residual is its log error."""
GRAPHICS, GRAPHICS_WIDTH, WIDTH = 0.5, 0.5, 0.2
"""Prior share of graphics cards that run, its width, and the width of a family's deviation."""
WAITING, WAITING_WIDTH = 0.5, 0.5
"""Prior part of the running power of a GPU that waits for others, and its width."""


@dataclass(frozen=True)
class Table:
    """Runs as columns, at the measured or at the simulated step time."""

    runs: tuple[Run, ...]
    coefficients: PowerCoefficients
    simulated: bool = False

    def __len__(self) -> int:
        return len(self.runs)

    def of(self, kept: Callable[[Run], bool]) -> "Table":
        """Return the runs for which *kept* holds."""
        return replace(self, runs=tuple(filter(kept, self.runs)))

    def column(self, read: Callable[[Run], float]) -> Floats:
        """Return a value of every run."""
        return np.array([read(run) for run in self.runs])

    def power(self, run: Run) -> GpuPower:
        """Return the idle power and the power limit of the run's GPU."""
        power = GpuPower.of(run.gpu, self.coefficients)
        assert power is not None
        return power

    @cached_property
    def faster(self) -> Floats:
        """Measured step time relative to the one in use."""
        return self.column(lambda run: run.slower if self.simulated else 1.0)

    @cached_property
    def watts(self) -> Floats:
        """Measured power per GPU [W]."""
        return self.column(lambda run: run.watts)

    @cached_property
    def idle_w(self) -> Floats:
        """Power with loaded weights and no work [W]."""
        return self.column(lambda run: self.power(run).idle_w)

    @cached_property
    def span_w(self) -> Floats:
        """Difference between power limit and idle power [W]."""
        return self.column(lambda run: self.power(run).limit_w) - self.idle_w

    @cached_property
    def busy(self) -> Floats:
        """Fraction of the simulated step in which the GPU does not wait for the host, nor fully for other GPUs."""
        return self.not_waiting + self.coefficients.waiting.value * self.linked

    @cached_property
    def not_waiting(self) -> Floats:
        """Fraction of the simulated step in which the GPU does not wait at all."""
        return self.column(lambda run: min(1.0, run.busy * run.slower)) - self.linked

    @cached_property
    def linked(self) -> Floats:
        """Fraction of the simulated step in which the GPU waits for other GPUs."""
        return self.column(lambda run: run.linked * run.slower)

    @cached_property
    def turns(self) -> Floats:
        """Number of stages that work one after the other."""
        return self.column(lambda run: run.turns)

    @cached_property
    def shares(self) -> tuple[Floats, Floats]:
        """Fractions of time at the dense peak and at full memory bandwidth."""
        return self.column(lambda run: run.compute) * self.faster, self.column(lambda run: run.memory) * self.faster

    @cached_property
    def flops(self) -> Floats:
        """Operations per second, counted at the 16-bit rate."""
        return self.shares[0] * self.column(lambda run: run.gpu.fp16_flops.value)

    @cached_property
    def bytes(self) -> Floats:
        """Bytes read per second."""
        return self.shares[1] * self.column(lambda run: run.gpu.memory_bytes_per_s.value)

    @cached_property
    def narrow(self) -> Floats:
        """1 for weights with fewer than 16 bits, else 0."""
        return self.column(lambda run: float(run.narrow))

    @cached_property
    def activations(self) -> Floats:
        """Activations computed per second."""
        return self.column(lambda run: run.activations * run.tokens_per_s) * self.faster

    @cached_property
    def weights(self) -> Floats:
        """Weights of the runs; groups have the same weight."""
        sizes: dict[str, int] = defaultdict(int)
        for run in self.runs:
            sizes[run.group] += 1
        return self.column(lambda run: sizes[run.group] ** -0.5)


Law = Callable[[Sequence[float], Table], Floats]
"""Function (parameters, runs) -> power per GPU [W]."""


def capped(z: Floats, table: Table, sharpness: float = SHARPNESS) -> Floats:
    """Return the power of work that needs the fraction *z* of the span between idle power and limit [W]."""
    z = np.maximum(z, 0.0)
    return np.asarray(table.idle_w + table.span_w * z / (1 + z**sharpness) ** (1 / sharpness))


def work(parameters: Sequence[float], table: Table) -> Floats:
    """Return the fraction from computing, 100 pJ per byte (more for narrow weights), and 10 nJ per activation."""
    return np.asarray(parameters[0] * table.shares[0] + joules(parameters[1:], table) / table.span_w)


def joules(parameters: Sequence[float], table: Table) -> Floats:
    """Return the power of bytes and activations [W]."""
    per_byte, narrow, per_activation = parameters
    byte = 100 * per_byte * table.bytes * (1 + narrow * table.narrow)
    return np.asarray((byte + 1e4 * per_activation * table.activations) * 1e-12)


def adopted_law(parameters: Sequence[float], table: Table) -> Floats:
    """Return the power of the adopted law: running power, computing share, and energy of bytes and activations."""
    return capped(parameters[4] * table.busy + work(parameters[:4], table), table)


def by_share(parameters: Sequence[float], table: Table) -> Floats:
    """Return the power of the law with memory bandwidth shares instead of energy per byte."""
    computing, reading, narrow, per_activation, running = parameters
    compute, memory = table.shares
    z = computing * compute + reading * memory * (1 + narrow * table.narrow)
    return capped(z + running * table.busy + 1e-8 * per_activation * table.activations / table.span_w, table)


def smoother(parameters: Sequence[float], table: Table) -> Floats:
    """Return the power of the law with a smoother bend at the limit."""
    return capped(parameters[4] * table.busy + work(parameters[:4], table), table, 3)


def sharper(parameters: Sequence[float], table: Table) -> Floats:
    """Return the power of the law with a sharper bend at the limit."""
    return capped(parameters[4] * table.busy + work(parameters[:4], table), table, 6)


def without_running(parameters: Sequence[float], table: Table) -> Floats:
    """Return the power of the law without running power."""
    return capped(work(parameters, table), table)


def without_activations(parameters: Sequence[float], table: Table) -> Floats:
    """Return the power of the law with computing and reading alone."""
    return adopted_law([*parameters[:3], 0.0, parameters[3]], table)


def without_narrow(parameters: Sequence[float], table: Table) -> Floats:
    """Return the power of the law with the same energy for every byte."""
    return adopted_law([*parameters[:2], 0.0, *parameters[2:]], table)


def energies(parameters: Sequence[float], table: Table) -> Floats:
    """Return the fraction from pJ per operation, 100 pJ per byte (more for narrow weights), 10 nJ per activation."""
    return (1e-12 * parameters[0] * table.flops + joules(parameters[1:], table)) / table.span_w


def by_energy(parameters: Sequence[float], table: Table) -> Floats:
    """Return the power of the law with an energy per operation, equal for all generations."""
    return capped(parameters[4] * table.busy + energies(parameters[:4], table), table)


def before(parameters: Sequence[float], table: Table) -> Floats:
    """Return the power of a law with energies alone and a smoother bend."""
    return capped(energies(parameters, table), table, 3)


START = [COMPUTING, 0.8, 0.5, 1.5, 0.2]
LAWS: dict[str, tuple[Law, list[float]]] = {
    "the law": (adopted_law, START),
    "smoother": (smoother, START),
    "sharper": (sharper, START),
    "none for running": (without_running, START[:4]),
    "no activations": (without_activations, [*START[:3], START[4]]),
    "all bytes alike": (without_narrow, [*START[:2], *START[3:]]),
    "bytes by share": (by_share, [COMPUTING, 0.4, *START[2:]]),
    "by energy": (by_energy, [COMPUTING, 1.0, *START[2:]]),
    "before": (before, [COMPUTING, 1.6, *START[2:4]]),
}


def fitted(law: Law, start: list[float], table: Table) -> list[float]:
    """Return the robust least-squares fit of log power."""

    def residuals(theta: Floats, /) -> Floats:
        apart = np.log(np.maximum(1.0, law(list(theta), table)) / table.watts) * table.weights
        priors = [(theta[0] - COMPUTING) / COMPUTING_WIDTH, (theta[2] - NARROW) / NARROW_WIDTH]
        return np.concatenate([apart, PRIOR_WEIGHT * np.array(priors[: 1 if law is without_narrow else 2])])

    return [float(p) for p in least_squares(residuals, start, loss="soft_l1", f_scale=0.2).x]


Errors = dict[Run, float]


def errors(law: Law, parameters: Sequence[float], table: Table) -> Errors:
    """Return the relative error of each run."""
    return dict(zip(table.runs, (law(parameters, table) / table.watts - 1).tolist(), strict=True))


def left_out(law: Law, start: list[float], table: Table, key: Callable[[Run], str]) -> list[Errors]:
    """Return the errors at the measured and the simulated step time of fits without each run's *key*."""
    found: list[Errors] = [{}, {}]
    for out in sorted({key(run) for run in table.runs}):
        parameters = fitted(law, start, table.of(lambda run, out=out: key(run) != out and not run.checked))  # type: ignore[misc]
        members = table.of(lambda run, out=out: key(run) == out)  # type: ignore[misc]
        for errors_of, simulated in zip(found, (False, True), strict=True):
            errors_of.update(errors(law, parameters, replace(members, simulated=simulated)))
    return found


def families(parameters: Sequence[float], cards: Table) -> dict[str, float]:
    """Return the running power of graphics cards by family, shrunk towards their common value, and the waiting part."""
    names = sorted({_family(run, cards) for run in cards.runs})
    place = np.array([names.index(_family(run, cards)) for run in cards.runs])

    def residuals(theta: Floats, /) -> Floats:
        apart = np.log(watts_of(parameters, theta[1] + theta[2:][place], theta[0], cards) / cards.watts)
        priors = [(theta[0] - WAITING) / WAITING_WIDTH, (theta[1] - GRAPHICS) / GRAPHICS_WIDTH, *theta[2:] / WIDTH]
        return np.concatenate([apart, 0.2 * np.array(priors)])

    theta = least_squares(residuals, [WAITING, GRAPHICS, *[0.0] * len(names)], loss="soft_l1", f_scale=0.2).x
    found = {"waiting": theta[0], "graphics": theta[1]} | dict(zip(names, theta[1] + theta[2:], strict=True))
    return {name: float(value) for name, value in found.items()}


def watts_of(parameters: Sequence[float], running: Floats, waiting: float, table: Table) -> Floats:
    """Return the power with a running share per run and the part *waiting* for waits for other GPUs [W].

    With stages that take turns, all but the working one wait.
    """
    own = capped(running * (table.not_waiting + waiting * table.linked) + work(parameters, table), table)
    others = capped(running * waiting, table)
    return np.asarray((own + (table.turns - 1) * others) / table.turns)


def _family(run: Run, table: Table) -> str:
    return next(name for name, family in table.coefficients.families.items() if family.has(run.gpu))


def card_errors(parameters: Sequence[float], cards: Table, key: Callable[[Run], str] | None) -> list[Errors]:
    """Return the errors of graphics cards at both step times, each without those of its *key*; None: all are fitted."""
    found: list[Errors] = [{}, {}]
    for out in sorted({key(run) for run in cards.runs}) if key else [""]:
        learnt = families(parameters, cards.of(lambda run, out=out: not run.checked and (not key or key(run) != out)))  # type: ignore[misc]
        members = cards.of(lambda run, out=out: not key or key(run) == out)  # type: ignore[misc]
        running = np.array([learnt.get(_family(run, cards), learnt["graphics"]) for run in members.runs])
        for errors_of, simulated in zip(found, (False, True), strict=True):
            one = replace(members, simulated=simulated)
            watts = watts_of(parameters, running, learnt["waiting"], one)
            errors_of.update(zip(one.runs, (watts / one.watts - 1).tolist(), strict=True))
    return found


def summary(found: Errors) -> str:
    """Return median, mean and 90th percentile over pairs of median absolute errors, and the median signed error."""
    pairs: dict[str, list[float]] = defaultdict(list)
    for run, error in found.items():
        pairs[run.pair].append(error)
    medians = [float(np.median(np.abs(of))) for of in pairs.values()]
    signed = float(np.median([np.median(of) for of in pairs.values()]))
    return f"{np.median(medians):6.1%} {np.mean(medians):6.1%} {np.quantile(medians, 0.9):4.0%} {signed:+4.0%}"


def by_pair(run: Run) -> str:
    """Return the fold key that leaves a pair out."""
    return run.pair


def by_gpu(run: Run) -> str:
    """Return the fold key that leaves a GPU out."""
    return run.gpu.id


def by_source(run: Run) -> str:
    """Return the fold key that leaves a source out."""
    return run.source
