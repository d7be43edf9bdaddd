"""Failures, checkpoints and restarts of a job: expected times after Young and Daly.

Failures of a job come at rate 1/M whatever it does. Each loses the work since the last save and takes R until training
goes on; a failure meanwhile begins the restart anew. With saves of d seconds after every t seconds of training, Ts
seconds of training take (J. T. Daly, Future Generation Computer Systems 22 (2006) 303, equation 20)

    T = M exp(R/M) (exp((t + d)/M) - 1) Ts/t

and the best t is near Young's sqrt(2 d M) (Communications of the ACM 17 (1974) 530).
"""

from dataclasses import dataclass
from math import exp, expm1, inf, isinf, sqrt

LARGEST_EXPONENT = 700.0
"""Beyond, a float overflows: nobody sees the end of such a job."""


@dataclass(frozen=True, slots=True)
class Interruptions:
    """What interrupts a job."""

    mtbf_s: float = inf
    """Mean time between failures of the whole job [s]."""
    save_s: float = 0.0
    restart_s: float = 0.0
    """From a failure until training goes on [s]."""


@dataclass(frozen=True, slots=True)
class Makespan:
    """Expected wall-clock time from the first step to the last [s], and where it goes."""

    training_s: float
    """Steps that count."""
    saving_s: float
    """Saves that were of use."""
    lost_s: float
    """Training and saves between the last save and a failure."""
    restarting_s: float
    failures: float
    interval_s: float
    """Training time between saves."""

    @property
    def total_s(self) -> float:
        """All of it; inf where failures come faster than the job gets on."""
        return self.training_s + self.saving_s + self.lost_s + self.restarting_s


def optimal_interval_s(save_s: float, mtbf_s: float) -> float:
    """Training time between saves that makes the job shortest (Daly, equation 37) [s]; inf where nothing fails.

    >>> round(optimal_interval_s(save_s=40.0, mtbf_s=7 * 86400.0))
    6929
    """
    if isinf(mtbf_s):
        return inf
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    share = sqrt(save_s / (2 * mtbf_s))
    return sqrt(2 * save_s * mtbf_s) * (1 + share / 3 + share * share / 9) - save_s


def makespan(training_s: float, interval_s: float, stops: Interruptions) -> Makespan:
    """What *training_s* of undisturbed training take when the job saves after every *interval_s* [s]."""
    interval_s = min(interval_s, training_s)
    saving_s = stops.save_s * training_s / interval_s
    if isinf(stops.mtbf_s):
        return Makespan(training_s, saving_s, 0.0, 0.0, 0.0, interval_s)
    restart, segment = stops.restart_s / stops.mtbf_s, (interval_s + stops.save_s) / stops.mtbf_s
    if restart + segment > LARGEST_EXPONENT:
        return Makespan(training_s, saving_s, inf, 0.0, inf, interval_s)
    total_s = stops.mtbf_s * exp(restart) * expm1(segment) * training_s / interval_s
    restarting_s = -expm1(-restart) * total_s  # each of total/M failures: a restart, cut short by the next failure
    lost_s = max(0.0, total_s - training_s - saving_s - restarting_s)
    return Makespan(training_s, saving_s, lost_s, restarting_s, total_s / stops.mtbf_s, interval_s)
