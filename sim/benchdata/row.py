"""One measured operating point of a serving engine: its conditions, its requests and what was measured."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SEED = 18


@dataclass(frozen=True, slots=True)
class CountedTraffic:
    """What ran at one page of metrics, and what came until another."""

    remaining: tuple[float, ...]
    """Of each request that runs at the first page: tokens that it has yet to make, rising."""
    waiting: float
    """Requests at the first page."""
    came: tuple[tuple[float, float], ...]
    """(seconds after the first page, requests that had come since), in rising order; the last is the last page."""
    answer: float
    """Mean answer [tokens]."""
    gap_s: float
    """Between two tokens at the first page."""
    draw: int = 0
    """Number of the draw of what was not counted: moments between two pages, lengths. In the first lengths are even."""
    stretch: str = ""
    """Of which this is a part."""

    @property
    def begin_s(self) -> float:
        """When the first page is taken: after an answer, in which those that run then began one after the other."""
        return self.answer * self.gap_s if self.remaining else 0.0

    @property
    def end_s(self) -> float:
        """When the last page is taken."""
        return self.begin_s + self.came[-1][0]

    def generator(self) -> np.random.Generator:
        """Fresh, of its draw."""
        return np.random.default_rng((SEED, self.draw))

    def arrivals_s(self) -> Floats:
        """When requests come, rising: those that run at the first page, those that wait, and the others."""
        generator = self.generator()
        moments = [self._since_begun() * self.begin_s, np.full(round(self.waiting), self.begin_s)]
        since_s, number = 0.0, 0
        for until_s, upto in self.came:
            more = max(0, round(upto) - number)
            moments.append(self.begin_s + since_s + (until_s - since_s) * np.sort(generator.random(more)))
            since_s, number = until_s, number + more
        return np.concatenate(moments)

    def running_answers(self) -> Floats:
        """Whole answers of those that run at the first page [tokens]; who has the least left began first."""
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
"""Columns that hold what was measured, and what a prediction is compared in. `power_w` is the sum over the GPUs."""
LOADS = ("closed_loop", "poisson", "constant", "burst", "static_batch", "single", "trace")
"""closed_loop: `concurrency` requests in flight; poisson, constant: `rate_req_s`; burst: all at once; static_batch: all
start together and nobody joins; single: one request at a time; trace: recorded arrivals."""
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
"""What was asked of a server, as amounts."""
AMOUNTS = (*CONDITIONS, "energy_j_per_output_token")


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A row of a benchmark table; empty texts and None are unknown. Lengths in tokens, rates per second."""

    line: int
    """Of the table's file; 0 where a file holds one row."""
    id: str
    gpu: str
    model: str
    engine: str = ""
    """Empty: vLLM."""
    load: str = "closed_loop"
    """One of LOADS."""
    isl: float | None = None
    """Mean prompt."""
    osl: float | None = None
    """Mean answer."""
    prompt_cv: float | None = None
    """Standard deviation of prompts over their mean; None: all of one length."""
    output_cv: float | None = None
    cached_share: float | None = None
    """Share of prompt tokens that come out of the prefix cache."""
    concurrency: int | None = None
    rate_req_s: float | None = None
    burstiness: float | None = None
    """Shape of the gamma law of the gaps between requests of a rate; None: 1, independent arrivals."""
    avg_batch: float | None = None
    num_requests: int | None = None
    n_gpus: int = 1
    tp: int | None = None
    pp: int = 1
    dp: int = 1
    ep: int | None = None
    interconnect: str = ""
    """In the source's words."""
    precision: str = ""
    """Empty: the model's own."""
    kv_dtype: str = ""
    engine_version: str = ""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    measured_at: str = ""
    """client or engine; empty: client."""
    spec_decode: str = ""
    power_cap_w: float | None = None
    source_key: str = ""
    """The campaign that the row belongs to."""
    model_family: str = ""
    workload: str = ""
    trust: str = ""
    use: str = ""
    source: str = ""
    note: str = ""
    replay: str = ""
    """File with the recorded requests of a trace; empty: there is none."""
    counted: CountedTraffic | None = None
    """The requests that came, in place of a steady rate; None: nobody counted them."""
    measured: dict[str, float] = field(default_factory=dict)
    """By METRICS; what was not measured is absent."""
