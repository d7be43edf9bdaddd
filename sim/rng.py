"""Random numbers: named streams from one seed, quantile functions of all distributions, and rank correlations.

A distribution is drawn by its inverse, u -> F^-1(u) of one uniform number: request *i* of a stream, failure *i* of a
component and draw *i* of a price have the same quantile whatever the parameters, so that scenarios share their luck.

References
----------
A. M. Law, "Simulation Modeling and Analysis", 5th ed., section 8.3 (inverses); N. L. Johnson, S. Kotz and
N. Balakrishnan, "Continuous Univariate Distributions", vol. 1, ch. 14 (lognormal) and 21 (Weibull).

"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import gamma, log, log1p, sqrt
from types import ModuleType
from typing import Any, Literal, TypeVar, cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
U = TypeVar("U", float, Numbers)
"""Cumulative probabilities, 0 to 1: one, or an array of them."""


# Annotations name np.random in quotes: numpy imports it at its first use, and a check draws nothing.
def stream(seed: int, replication: int, name: str) -> "np.random.Generator":
    """Return the random stream *name* of one replication, the same in every fleet and at every sweep point.

    Fleets compared under one seed therefore get the same requests (common random numbers). A draw in one part of the
    model never shifts the draws of another.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, replication, crc32(name.encode())])))


@dataclass(frozen=True, slots=True)
class SeededStreams:
    """Function from a name to a fresh random stream of one replication; equal functions return equal streams."""

    seed: int
    replication: int
    prefix: str = ""
    """Text before every name, such as that of a service with its own streams."""

    def __call__(self, name: str) -> "np.random.Generator":
        """Return the random stream *name*."""
        return stream(self.seed, self.replication, self.prefix + name)


@cache
def special_function(name: str) -> Callable[..., Any]:
    """Return the function *name* of scipy.special: ndtr, ndtri or stdtrit.

    Only the module that defines it is imported: its package takes 0.2 s, most of it for other array libraries.
    """
    package = "scipy.special"
    if package not in sys.modules:
        import scipy

        bare = ModuleType(package)
        bare.__path__ = [f"{folder}/special" for folder in scipy.__path__]
        sys.modules[package] = bare
        try:
            from scipy.special import _ufuncs

            return cast("Callable[..., Any]", getattr(_ufuncs, name))
        except (ImportError, AttributeError):  # a release of scipy that has it elsewhere
            pass
        finally:
            del sys.modules[package]
    from scipy import special

    return cast("Callable[..., Any]", getattr(special, name))


def exponential(u: U, mean: float) -> U:
    """Return the quantiles *u* of the exponential distribution, -mean ln(1 - u).

    >>> round(exponential(0.5, 100.0), 3)
    69.315
    """
    return -mean * (log1p(-u) if isinstance(u, float) else np.log1p(-u))


def weibull(u: float, mean: float, shape: float) -> float:
    """Return the quantile *u* of the Weibull distribution, scale (-ln(1 - u))^(1/shape), scale = mean / G(1 + 1/shape).

    >>> weibull(0.5, 100.0, shape=1.0) == exponential(0.5, 100.0)
    True
    """
    return float(mean / gamma(1 + 1 / shape) * (-log1p(-u)) ** (1 / shape))


def geometric(u: Numbers, mean: float) -> Numbers:
    """Return the quantiles *u* of P(n) = p (1 - p)^(n-1) for n = 1, 2, ... with p = 1/mean, as whole numbers."""
    return np.ones(len(u)) if mean == 1 else np.ceil(np.log1p(-u) / log1p(-1 / mean))


def triangular(u: Numbers, low: float, mode: float, high: float) -> Numbers:
    """Return the quantiles *u* of the triangular distribution."""
    if low == high:
        return np.full_like(u, low)
    left = low + np.sqrt(u * (high - low) * (mode - low))
    right = high - np.sqrt((1 - u) * (high - low) * (high - mode))
    return np.asarray(np.where(u < (mode - low) / (high - low), left, right))


def log_moments(mean: float, cv: float) -> tuple[float, float]:
    """Return mean and standard deviation of the logarithm of a lognormal quantity: mu and sigma.

    sigma^2 = ln(1 + cv^2) and mu = ln(mean) - sigma^2 / 2, where cv is the standard deviation over the mean.
    """
    variance = log1p(cv**2)
    return log(mean) - variance / 2, sqrt(variance)


def lognormal(u: U, mu: float, sigma: float, largest: float = np.inf) -> U:
    """Return the quantiles *u* of exp(mu + sigma Z) with Z standard normal, at most *largest*."""
    normal: Numbers = special_function("ndtri")(u)
    quantiles = np.exp(np.minimum(mu + sigma * normal, log(largest)))
    return float(quantiles) if isinstance(u, float) else quantiles


def truncated_normal(u: Numbers, mean: float, sd: float, low: float, high: float) -> Numbers:
    """Return the quantiles *u* of a normal distribution truncated to *low* and *high*.

    The equation is F^-1(F(low) + u (F(high) - F(low))).
    """
    ndtr, ndtri = special_function("ndtr"), special_function("ndtri")
    below, above = ndtr((low - mean) / sd), ndtr((high - mean) / sd)
    return np.asarray(np.clip(mean + sd * ndtri(below + u * (above - below)), low, high))


Dependence = Literal["gaussian_copula", "iman_conover"]


def normal_correlations(ranks: Numbers) -> Numbers:
    """Return the correlation matrix of the normal scores whose rank correlations are *ranks*: 2 sin(pi r / 6).

    References
    ----------
    K. Pearson, "On further methods of determining correlation", 1907; W. H. Kruskal, "Ordinal measures of association",
    JASA 53 (1958).

    """
    return 2 * np.sin(np.pi * ranks / 6)


def largest_scale(ranks: Numbers) -> float:
    """Return the largest factor of the rank correlations *ranks*, at most 1, at which numbers with them exist.

    >>> opposed = np.array([[1.0, 0.9, 0.9], [0.9, 1.0, -0.9], [0.9, -0.9, 1.0]])
    >>> round(largest_scale(opposed), 2), largest_scale(np.eye(3))
    (0.54, 1.0)
    """
    low, high, off = 0.0, 1.0, ranks - np.eye(len(ranks))

    def exists(scale: float) -> bool:
        return bool(np.linalg.eigvalsh(normal_correlations(np.eye(len(ranks)) + scale * off)).min() > -_ROUNDING)

    if len(ranks) < 2 or exists(high):
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if exists(middle) else (low, middle)
    return low


_ROUNDING, _HALVINGS = 1e-9, 40


def correlated(u: Numbers, ranks: Numbers, dependence: Dependence = "gaussian_copula") -> Numbers:
    """Return uniform numbers with the rank correlations *ranks* between columns, from independent *u*.

    Parameters
    ----------
    u
        Independent uniform numbers between 0 and 1 (draws x columns).
    ranks
        Spearman correlations of the columns; `largest_scale` must be 1.
    dependence
        `gaussian_copula`: draws of a joint normal distribution, whose sample correlations vary; the first column stays
        as it is, and further draws leave the earlier ones unchanged. `iman_conover`: the numbers of each column,
        reordered so that the sample has these rank correlations, up to the difference between ranks and scores.

    References
    ----------
    R. L. Iman and W. J. Conover, "A distribution-free approach to inducing rank correlation among input variables",
    Communications in Statistics B11 (1982).

    """
    ndtr, ndtri = special_function("ndtr"), special_function("ndtri")
    wanted = normal_correlations(ranks)
    root = np.linalg.cholesky(wanted + 2 * _ROUNDING * np.eye(len(ranks)))
    if dependence == "gaussian_copula":
        return np.asarray(ndtr(ndtri(u) @ root.T))
    scores = ndtri((np.argsort(np.argsort(u, axis=0), axis=0) + 1) / (len(u) + 1))
    own = np.linalg.cholesky(np.corrcoef(scores, rowvar=False))
    order = np.argsort(np.argsort(scores @ np.linalg.inv(own).T @ root.T, axis=0), axis=0)
    return np.take_along_axis(np.sort(u, axis=0), order, axis=0)
