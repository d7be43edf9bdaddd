"""Laws of power and their fits to runs with measured watts: the method of power.py.

Runs are fitted at their measured steps, so that errors of the step time stay out. Groups (source, GPU, model, GPUs,
workload) weigh the same. Families of graphics cards are fitted last, with the other figures as they are; they differ
from one another by WIDTH.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.fit.power_runs import Run
from sim.power import SHARPNESS, GpuPower, PowerCoefficients

Floats = NDArray[np.float64]
COMPUTING, COMPUTING_WIDTH = 0.8, 0.2
"""Few rows are held up by arithmetic: large products reach some 0.75 of the peak and take a card to its limit."""
NARROW, NARROW_WIDTH = 1.0, 1.0
"""Two models, each on cards of one kind, tell what unpacking takes."""
PRIOR_WEIGHT = 0.3
"""Residual of a prior that is missed by its width; a run's is its logarithm."""
GRAPHICS, GRAPHICS_WIDTH, WIDTH = 0.5, 0.5, 0.2
"""Prior share of graphics cards that run, its width, and that of a family's departure from the others."""
WAITING, WAITING_WIDTH = 0.5, 0.5
"""Prior part of it that a card draws which waits for others; clusters with NVLink hardly tell."""


@dataclass(frozen=True)
class Table:
    """Runs as columns; `faster` is how many times faster than measured their steps are taken to be."""

    runs: tuple[Run, ...]
    coefficients: PowerCoefficients
    simulated: bool = False

    def __len__(self) -> int:
        return len(self.runs)

    def of(self, kept: Callable[[Run], bool]) -> "Table":
        """Those of the runs that are *kept*."""
        return replace(self, runs=tuple(filter(kept, self.runs)))

    def column(self, read: Callable[[Run], float]) -> Floats:
        """A figure of every run."""
        return np.array([read(run) for run in self.runs])

    def power(self, run: Run) -> GpuPower:
        """Idle power and limit of the run's GPU."""
        power = GpuPower.of(run.gpu, self.coefficients)
        assert power is not None
        return power

    @cached_property
    def faster(self) -> Floats:
        """Measured step over the one that is asked about."""
        return self.column(lambda run: run.slower if self.simulated else 1.0)

    @cached_property
    def watts(self) -> Floats:
        """Measured, of one GPU."""
        return self.column(lambda run: run.watts)

    @cached_property
    def idle_w(self) -> Floats:
        """With weights loaded and no work."""
        return self.column(lambda run: self.power(run).idle_w)

    @cached_property
    def span_w(self) -> Floats:
        """What lies between idle power and the limit."""
        return self.column(lambda run: self.power(run).limit_w) - self.idle_w

    @cached_property
    def busy(self) -> Floats:
        """Share of the simulator's step in which the GPU waits neither for the host nor, but for a part, for others."""
        return self.waits_not + self.coefficients.waiting.value * self.linked

    @cached_property
    def waits_not(self) -> Floats:
        """Share of it in which the GPU waits for nobody."""
        return self.column(lambda run: min(1.0, run.busy * run.slower)) - self.linked

    @cached_property
    def linked(self) -> Floats:
        """Share of it in which the GPU waits for other GPUs."""
        return self.column(lambda run: run.linked * run.slower)

    @cached_property
    def turns(self) -> Floats:
        """Stages that work one after the other."""
        return self.column(lambda run: run.turns)

    @cached_property
    def shares(self) -> tuple[Floats, Floats]:
        """Of time at the dense peak and of reading memory."""
        return self.column(lambda run: run.compute) * self.faster, self.column(lambda run: run.memory) * self.faster

    @cached_property
    def flops(self) -> Floats:
        """Operations a second, at the 16-bit rate."""
        return self.shares[0] * self.column(lambda run: run.gpu.fp16_flops.value)

    @cached_property
    def bytes(self) -> Floats:
        """Read a second."""
        return self.shares[1] * self.column(lambda run: run.gpu.memory_bytes_per_s.value)

    @cached_property
    def narrow(self) -> Floats:
        """1 where weights have fewer than 16 bits."""
        return self.column(lambda run: float(run.narrow))

    @cached_property
    def activations(self) -> Floats:
        """Computed a second."""
        return self.column(lambda run: run.activations * run.tokens_per_s) * self.faster

    @cached_property
    def weights(self) -> Floats:
        """Groups weigh the same."""
        sizes: dict[str, int] = defaultdict(int)
        for run in self.runs:
            sizes[run.group] += 1
        return self.column(lambda run: sizes[run.group] ** -0.5)


Law = Callable[[Sequence[float], Table], Floats]
"""(parameters, runs) -> watts of a GPU in each."""


def capped(z: Floats, table: Table, sharpness: float = SHARPNESS) -> Floats:
    """Watts of work that would take *z* of what lies between idle power and the limit."""
    z = np.maximum(z, 0.0)
    return np.asarray(table.idle_w + table.span_w * z / (1 + z**sharpness) ** (1 / sharpness))


def work(parameters: Sequence[float], table: Table) -> Floats:
    """The same share from computing, 100 pJ per byte, more of it for narrow weights, and 10 nJ per activation."""
    return np.asarray(parameters[0] * table.shares[0] + joules(parameters[1:], table) / table.span_w)


def joules(parameters: Sequence[float], table: Table) -> Floats:
    """Watts of bytes and activations."""
    per_byte, narrow, per_activation = parameters
    byte = 100 * per_byte * table.bytes * (1 + narrow * table.narrow)
    return np.asarray((byte + 1e4 * per_activation * table.activations) * 1e-12)


def the_law(parameters: Sequence[float], table: Table) -> Floats:
    """The law: what a card draws that runs, computing as a share of its peak, bytes and activations in joules."""
    return capped(parameters[4] * table.busy + work(parameters[:4], table), table)


def by_share(parameters: Sequence[float], table: Table) -> Floats:
    """The law with shares of what the memory can do in place of joules per byte."""
    computing, reading, narrow, per_activation, running = parameters
    compute, memory = table.shares
    z = computing * compute + reading * memory * (1 + narrow * table.narrow)
    return capped(z + running * table.busy + 1e-8 * per_activation * table.activations / table.span_w, table)


def rounder(parameters: Sequence[float], table: Table) -> Floats:
    """The law with a rounder bend at the limit."""
    return capped(parameters[4] * table.busy + work(parameters[:4], table), table, 3)


def sharper(parameters: Sequence[float], table: Table) -> Floats:
    """The law with a sharper bend at the limit."""
    return capped(parameters[4] * table.busy + work(parameters[:4], table), table, 6)


def without_running(parameters: Sequence[float], table: Table) -> Floats:
    """The law without what a card draws that runs."""
    return capped(work(parameters, table), table)


def without_activations(parameters: Sequence[float], table: Table) -> Floats:
    """The law with computing and reading alone."""
    return the_law([*parameters[:3], 0.0, parameters[3]], table)


def without_narrow(parameters: Sequence[float], table: Table) -> Floats:
    """The law with every byte alike."""
    return the_law([*parameters[:2], 0.0, *parameters[2:]], table)


def energies(parameters: Sequence[float], table: Table) -> Floats:
    """The same share from pJ per operation, 100 pJ per byte, more for narrow weights, and 10 nJ per activation."""
    return (1e-12 * parameters[0] * table.flops + joules(parameters[1:], table)) / table.span_w


def by_energy(parameters: Sequence[float], table: Table) -> Floats:
    """The law with the energy of an operation, too, the same for every generation."""
    return capped(parameters[4] * table.busy + energies(parameters[:4], table), table)


def before(parameters: Sequence[float], table: Table) -> Floats:
    """An earlier law: energies alone, a rounder bend."""
    return capped(energies(parameters, table), table, 3)


START = [COMPUTING, 0.8, 0.5, 1.5, 0.2]
LAWS: dict[str, tuple[Law, list[float]]] = {
    "the law": (the_law, START),
    "rounder": (rounder, START),
    "sharper": (sharper, START),
    "none for running": (without_running, START[:4]),
    "no activations": (without_activations, [*START[:3], START[4]]),
    "all bytes alike": (without_narrow, [*START[:2], *START[3:]]),
    "bytes by share": (by_share, [COMPUTING, 0.4, *START[2:]]),
    "by energy": (by_energy, [COMPUTING, 1.0, *START[2:]]),
    "before": (before, [COMPUTING, 1.6, *START[2:4]]),
}


def fitted(law: Law, start: list[float], table: Table) -> list[float]:
    """Least squares of log power, robust."""

    def residuals(theta: Floats, /) -> Floats:
        apart = np.log(np.maximum(1.0, law(list(theta), table)) / table.watts) * table.weights
        priors = [(theta[0] - COMPUTING) / COMPUTING_WIDTH, (theta[2] - NARROW) / NARROW_WIDTH]
        return np.concatenate([apart, PRIOR_WEIGHT * np.array(priors[: 1 if law is without_narrow else 2])])

    return [float(p) for p in least_squares(residuals, start, loss="soft_l1", f_scale=0.2).x]


Errors = dict[Run, float]


def errors(law: Law, parameters: Sequence[float], table: Table) -> Errors:
    """Relative error of each run."""
    return dict(zip(table.runs, (law(parameters, table) / table.watts - 1).tolist(), strict=True))


def left_out(law: Law, start: list[float], table: Table, key: Callable[[Run], str]) -> list[Errors]:
    """Errors at the measured step and at the simulator's own, of fits without each run's *key*."""
    found: list[Errors] = [{}, {}]
    for out in sorted({key(run) for run in table.runs}):
        parameters = fitted(law, start, table.of(lambda run, out=out: key(run) != out and not run.checked))  # type: ignore[misc]
        members = table.of(lambda run, out=out: key(run) == out)  # type: ignore[misc]
        for errors_of, simulated in zip(found, (False, True), strict=True):
            errors_of.update(errors(law, parameters, replace(members, simulated=simulated)))
    return found


def families(parameters: Sequence[float], cards: Table) -> dict[str, float]:
    """What graphics cards draw that run, by family, shrunk towards what all of them do; and the part of `waiting`."""
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
    """Watts where each run has its own share for running, and *waiting* is its part for waits for other GPUs.

    Of stages that take turns all wait while one works.
    """
    own = capped(running * (table.waits_not + waiting * table.linked) + work(parameters, table), table)
    others = capped(running * waiting, table)
    return np.asarray((own + (table.turns - 1) * others) / table.turns)


def _family(run: Run, table: Table) -> str:
    return next(name for name, family in table.coefficients.families.items() if family.has(run.gpu))


def card_errors(parameters: Sequence[float], cards: Table, key: Callable[[Run], str] | None) -> list[Errors]:
    """Errors of graphics cards at both steps, each predicted without those of its *key*; None: all in the fit."""
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
    """Median, mean and 90th percentile over pairs of their median absolute error, and the median signed one."""
    pairs: dict[str, list[float]] = defaultdict(list)
    for run, error in found.items():
        pairs[run.pair].append(error)
    medians = [float(np.median(np.abs(of))) for of in pairs.values()]
    signed = float(np.median([np.median(of) for of in pairs.values()]))
    return f"{np.median(medians):6.1%} {np.mean(medians):6.1%} {np.quantile(medians, 0.9):4.0%} {signed:+4.0%}"


def by_pair(run: Run) -> str:
    """Key of the folds that leave a pair out."""
    return run.pair


def by_gpu(run: Run) -> str:
    """Key of the folds that leave a GPU out."""
    return run.gpu.id


def by_source(run: Run) -> str:
    """Key of the folds that leave a source out."""
    return run.source
