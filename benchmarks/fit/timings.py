"""Times of all observations at once, with the stages of their rows in flat arrays.

A term is a part of one row's step that is proportional to parameters: plain, or one of the three arguments of a matrix
product's p-norm. An observation's mean step is a weighted sum over its row's terms, so plain terms reduce to one
number each and only the products keep their step groups.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from stages import Names, Stages, touched_share

Floats = NDArray[np.float64]


class Timed(Protocol):
    """Steps of a row with the weight of each group."""

    stages: Stages
    weights: Floats
    request_names: Names


class Timings:
    """Mean steps of *observations* and their derivatives by the parameters *names*."""

    def __init__(self, observations: Sequence[Timed], names: Sequence[str]) -> None:
        self.names = list(names)
        self._column = {name: place for place, name in enumerate(self.names)}
        self._count = len(observations)
        plain: list[tuple[int, Names, float]] = []
        reads: list[tuple[int, Names, str, int]] = []
        experts: list[Floats] = []
        terms: list[tuple[int, tuple[Names, Names, Names], int]] = []
        parts: list[Floats] = []
        for place, one in enumerate(observations):
            share = one.weights / one.weights.sum()
            kept = share > 0
            plain += [(place, by, float(share @ base)) for by, base in one.stages.plain]
            for read in one.stages.reads:
                reads.append((place, read.by, read.diverse, int(kept.sum())))
                alike = np.ones_like(share[kept])
                read_s = read.all_s[kept] * share[kept]
                spread = (alike * part for part in (read.missed, read.diversity, read.fullest))
                experts.append(np.stack([read_s, read.later[kept], *spread]))
            for c_by, c, w_by, w, a_by, a in one.stages.products:
                terms.append((place, (c_by, w_by, a_by), int(kept.sum())))
                parts.append(np.stack([c[kept], w[kept], a[kept], share[kept]]))
        self._exponent = observations[0].stages.exponent
        self._plain_s = np.array([seconds for _, _, seconds in plain])
        self._plain_of = self._incidence([place for place, _, _ in plain])
        self._plain_by = self._by([by for _, by, _ in plain])
        self._reads = np.concatenate(experts, axis=1) if experts else np.zeros((5, 0))
        self._read_sizes = np.array([size for *_, size in reads], dtype=int)
        self._read_starts = np.concatenate([[0], np.cumsum(self._read_sizes)[:-1]]).astype(int)
        self._read_of = self._incidence([place for place, *_ in reads])
        self._read_by = self._by([by for _, by, _, _ in reads])
        self._diverse_by = self._by([(diverse,) for _, _, diverse, _ in reads])
        self._elements = np.concatenate(parts, axis=1)
        self._sizes = np.array([size for _, _, size in terms])
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)[:-1]])
        self._term_of = self._incidence([place for place, _, _ in terms])
        self._term_by = [self._by([by[i] for _, by, _ in terms]) for i in range(3)]
        self._request_by = self._by([one.request_names for one in observations])

    def _incidence(self, places: list[int]) -> csr_matrix:
        return csr_matrix((np.ones(len(places)), (places, np.arange(len(places)))), shape=(self._count, len(places)))

    def _by(self, named: list[Names]) -> csr_matrix:
        """Return how often each term contains each parameter."""
        cells = [(row, self._column[name]) for row, by in enumerate(named) for name in by if name in self._column]
        rows, columns = (np.array(one, dtype=int) for one in zip(*cells, strict=True)) if cells else ([], [])
        return csr_matrix((np.ones(len(cells)), (rows, columns)), shape=(len(named), len(self.names)))

    def means(self, theta: Floats) -> tuple[Floats, csr_matrix]:
        """Return the mean step of each observation [s] and its derivatives."""
        plain_s = self._plain_s * np.exp(self._plain_by @ theta)
        factors = [np.repeat(np.exp(by @ theta), self._sizes) for by in self._term_by]
        compute, weights, moved = (self._elements[i] * factors[i] for i in range(3))
        share, p = self._elements[3], self._exponent
        memory = weights + moved
        compute_p, memory_p = compute**p, memory**p
        both = compute_p + memory_p
        whole = both ** (1 / p)
        safe = np.where(both > 0, both, 1.0)  # a step that samples nothing has no LM head
        of_memory = np.where(memory > 0, whole * memory_p / safe / np.where(memory > 0, memory, 1.0), 0.0)
        slopes = [whole * compute_p / safe, of_memory * weights, of_memory * moved]
        terms_s = np.add.reduceat(whole * share, self._starts)
        mean_s = self._plain_of @ plain_s + self._term_of @ terms_s
        by = self._plain_of @ self._plain_by.multiply(plain_s[:, None]).tocsr()
        if self._read_sizes.size:
            all_s, later, missed, diversity, fullest = self._reads
            all_s = all_s * np.repeat(np.exp(self._read_by @ theta), self._read_sizes)
            diversity = diversity * np.repeat(np.exp(self._diverse_by @ theta), self._read_sizes)
            touched, slope = touched_share(missed, later, diversity, fullest)
            reading_s, turning_s = (np.add.reduceat(all_s * part, self._read_starts) for part in (touched, slope))
            mean_s = mean_s + self._read_of @ reading_s
            for names, seconds in ((self._read_by, reading_s), (self._diverse_by, turning_s)):
                by = by + self._read_of @ names.multiply(seconds[:, None]).tocsr()
        for slope, names in zip(slopes, self._term_by, strict=True):
            term_slope = np.add.reduceat(slope * share, self._starts)
            by = by + self._term_of @ names.multiply(term_slope[:, None]).tocsr()
        return mean_s, by

    def requests(self, theta: Floats) -> tuple[Floats, csr_matrix]:
        """Return the factor on each observation's time per request, and the parameters it is proportional to."""
        return np.exp(self._request_by @ theta), self._request_by


def vector(names: Sequence[str], theta: Mapping[str, float]) -> Floats:
    """Return *theta* in the order of *names*."""
    return np.array([theta.get(name, 0.0) for name in names])
