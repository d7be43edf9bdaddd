"""Measured operating point of a serving engine: conditions, requests and results."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SEED = 18


@dataclass(frozen=True, slots=True)
class CountedTraffic:
    """Traffic counted between scrapes of a server's metrics page.

    It consists of the requests running and waiting at the first scrape, and of the arrivals until the last.
    """

    remaining: tuple[float, ...]
    """Remaining answer tokens of each request running at the first scrape, ascending."""
    waiting: float
    """Number of waiting requests at the first scrape."""
    came: tuple[tuple[float, float], ...]
    """Cumulative arrivals as (seconds after the first scrape, number), ascending; the last entry is the last scrape."""
    answer: float
    """Mean answer length [tokens]."""
    gap_s: float
    """Time between tokens at the first scrape [s]."""
    draw: int = 0
    """Number of the random draw of arrival times between scrapes and of lengths; draw 0 has even lengths."""
    recording: str = ""
    """Name of the recording of which this is a part."""

    @property
    def begin_s(self) -> float:
        """Simulated time of the first scrape [s].

        It comes after the duration of an answer, during which the requests running at the scrape start one after
        another.
        """
        return self.answer * self.gap_s if self.remaining else 0.0

    @property
    def end_s(self) -> float:
        """Simulated time of the last scrape [s]."""
        return self.begin_s + self.came[-1][0]

    def generator(self) -> np.random.Generator:
        """Return a new random generator for this draw."""
        return np.random.default_rng((SEED, self.draw))

    def arrivals_s(self) -> Floats:
        """Return the arrival times, ascending: requests running and waiting at the first scrape, then others."""
        generator = self.generator()
        moments = [self._since_begun() * self.begin_s, np.full(round(self.waiting), self.begin_s)]
        since_s, number = 0.0, 0
        for until_s, upto in self.came:
            more = max(0, round(upto) - number)
            moments.append(self.begin_s + since_s + (until_s - since_s) * np.sort(generator.random(more)))
            since_s, number = until_s, number + more
        return np.concatenate(moments)

    def running_answers(self) -> Floats:
        """Return the whole answer lengths of the requests running at the first scrape [tokens].

        The requests with the fewest remaining tokens started first.
        """
        return np.maximum(1.0, np.round((1 - self._since_begun()) * self.answer + self.remaining))

    def _since_begun(self) -> Floats:
        running = len(self.remaining)
        return (np.arange(running) + 0.5) / max(1, running)


METRICS = (
    "output_tok_s",
    "total_tok_s",
    "req_s",
    "ttft_mean_ms",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "tpot_mean_ms",
    "tpot_p50_ms",
    "tpot_p99_ms",
    "e2e_mean_ms",
    "power_w",
)
"""Columns of measured values, compared with predictions. `power_w` is the sum over the GPUs."""
LOADS = ("closed_loop", "poisson", "constant", "burst", "static_batch", "single", "trace")
"""Kinds of load.

closed_loop: `concurrency` requests in flight; poisson, constant: `rate_req_s`; burst: all at once; static_batch: all
start together and none join; single: one request at a time; trace: recorded arrivals.
"""
TEXTS = (
    "id",
    "source_key",
    "gpu",
    "interconnect",
    "model",
    "model_family",
    "precision",
    "kv_dtype",
    "engine",
    "engine_version",
    "workload",
    "spec_decode",
    "trust",
    "source",
    "note",
    "use",
    "load",
    "measured_at",
)
COUNTS = ("n_gpus", "tp", "pp", "dp", "ep", "concurrency", "num_requests", "max_num_seqs", "max_num_batched_tokens")
CONDITIONS = (
    "isl",
    "osl",
    "prompt_cv",
    "output_cv",
    "cached_share",
    "rate_req_s",
    "burstiness",
    "avg_batch",
    "gpu_memory_utilization",
    "power_cap_w",
)
"""Numeric columns of the conditions."""
AMOUNTS = (*CONDITIONS, "energy_j_per_output_token")


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A row of a benchmark table; empty texts and None are unknown. Lengths in tokens, rates per second."""

    line: int
    """Line in the table's file; 0 if a file holds one row."""
    id: str
    gpu: str
    model: str
    engine: str = ""
    """Engine; empty: vLLM."""
    load: str = "closed_loop"
    """Kind of load, one of LOADS."""
    isl: float | None = None
    """Mean prompt length [tokens]."""
    osl: float | None = None
    """Mean answer length [tokens]."""
    prompt_cv: float | None = None
    """Coefficient of variation of prompt lengths; None: all equal."""
    output_cv: float | None = None
    cached_share: float | None = None
    """Fraction of prompt tokens found in the prefix cache."""
    concurrency: int | None = None
    rate_req_s: float | None = None
    burstiness: float | None = None
    """Shape of the gamma distribution of interarrival times; None: 1, Poisson arrivals."""
    avg_batch: float | None = None
    num_requests: int | None = None
    n_gpus: int = 1
    tp: int | None = None
    pp: int = 1
    dp: int = 1
    ep: int | None = None
    interconnect: str = ""
    """Link between the GPUs in the source's words."""
    precision: str = ""
    """Precision of the weights; empty: the model's own."""
    kv_dtype: str = ""
    engine_version: str = ""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    measured_at: str = ""
    """Place of the measurement, client or engine; empty: client."""
    spec_decode: str = ""
    power_cap_w: float | None = None
    source_key: str = ""
    """Campaign to which the row belongs."""
    model_family: str = ""
    workload: str = ""
    trust: str = ""
    use: str = ""
    source: str = ""
    note: str = ""
    replay: str = ""
    """File with the recorded requests of a trace; empty without one."""
    counted: CountedTraffic | None = None
    """Counted requests in place of a steady rate; None if requests were not counted."""
    measured: dict[str, float] = field(default_factory=dict)
    """Measured values, keyed by METRICS; values that were not measured are absent."""
