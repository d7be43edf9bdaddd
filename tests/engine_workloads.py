"""Random requests, limits and step times that the engines are compared on."""

import random
from math import isnan
from typing import Any

import pytest
from hypothesis import strategies as st

from sim import records
from sim.batching import EngineOptions
from sim.engine.limits import SchedulerLimits
from sim.records import Batch, Leap, Request

OPTIONS = {
    "reserve_full_isl": "scheduler_reserve_full_isl",
    "preemption_threshold": "priority_scheduling_preemption_threshold",
    "batch_wait_steps": "batch_wait_timeout_iters",
    "max_prefill_tokens": "max_num_batched_tokens",
}
"""Name of a limit in the reference engines -> option of the scheduler, where they differ."""


def rank_limits(*sizes: int, **values: Any) -> SchedulerLimits:
    """Return the limits of a rank from the same keywords that the reference engines take."""
    own = {name: value for name, value in values.items() if name in SchedulerLimits.__dataclass_fields__}
    given = {OPTIONS.get(name, name): value for name, value in values.items() if name not in own}
    if given.pop("longest_prefix_first", False):
        given["schedule_policy"] = "lpm"
    assert given.keys() <= EngineOptions.model_fields.keys(), given
    return SchedulerLimits(*sizes, options=EngineOptions.model_construct(**given), **own)


def skip_if_compiled() -> None:
    """Skip a test that overrides a method of the program, in a class or an object: compiled classes do not allow it."""
    if not records.__file__.endswith(".py"):
        pytest.skip("overrides a method of a compiled class")


class Open:
    """An engine whose methods can be replaced, also where engines are compiled."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


BASE, PER_TOKEN, PER_CONTEXT = 2.0**-6, 2.0**-12, 2.0**-20


class Affine:
    """Dyadic coefficients: sums of step times are exact in floating point."""

    window = None

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def leap(self, batch: Batch) -> Leap:
        tokens = batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens
        context = batch.kv_tokens + batch.prefill_context_tokens
        return Leap(
            self.scale * (BASE + PER_TOKEN * tokens + PER_CONTEXT * context),
            self.scale * PER_CONTEXT * batch.decode_seqs,
        )


class Adapted(Affine):
    """Tokens that ask for a LoRA adapter take four times as long."""

    def leap(self, batch: Batch) -> Leap:
        leap = super().leap(batch)
        leap.first_s += 3 * PER_TOKEN * batch.adapted_tokens
        return leap


class Windowed(Affine):
    """Reads only the last tokens of each context."""

    window = 24

    def leap(self, batch: Batch) -> Leap:
        return Leap(BASE + PER_CONTEXT * batch.windowed_kv_tokens, PER_CONTEXT * batch.windowed_growing_seqs)


# Made once: each draw of a new strategy checks it anew, which takes longer than the draw.
FLAGS = st.booleans()
COUNTS, BLOCKS, SEATS = st.integers(1, 24), st.integers(3, 40), st.integers(1, 12)
BLOCK_SIZES, SHARES_OF_BLOCKS = st.sampled_from([1, 4, 16]), st.sampled_from([1, 2])
GAPS, PRIORITIES = st.sampled_from([0, 0, 1, 3, 17, 64, 400]), st.integers(0, 2)
PROMPTS, OUTPUTS, CHAINS = st.integers(1, 90), st.integers(1, 60), st.lists(st.integers(0, 2), max_size=6)
SPARE_TOKENS, LENGTHS, SCHEDULING = (
    st.integers(0, 60),
    st.sampled_from([80, 1000]),
    st.sampled_from(["fcfs", "priority"]),
)
THRESHOLDS = st.one_of(st.just(0), st.integers(1, 30))
WATERMARKS = st.one_of(st.just(0.0), st.floats(0, 0.5))
INTERVALS = st.one_of(st.just(1), st.integers(2, 6))


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[dict], dict]:
    """A few dozen requests, many at equal dyadic times, with shared prefixes, and limits tight enough to preempt."""
    block_size = draw(BLOCK_SIZES)
    blocks = draw(BLOCKS)
    hash_block_tokens = block_size * draw(SHARES_OF_BLOCKS)
    requests = []
    clock = 0.0
    for index in range(draw(COUNTS)):
        clock += draw(GAPS) / 64
        prompt = draw(PROMPTS)
        chain = draw(CHAINS)
        hashes = tuple(hash(tuple(chain[: n + 1])) for n in range(len(chain)))
        requests.append(
            {
                "index": index, "arrived_s": clock, "prompt_tokens": prompt, "output_tokens": draw(OUTPUTS),
                "priority": draw(PRIORITIES), "block_hashes": hashes, "hash_block_tokens": hash_block_tokens,
            }
        )  # fmt: skip
    seats = draw(SEATS)
    limits = {
        "num_gpu_blocks": blocks, "block_size": block_size, "max_num_seqs": seats,
        "max_num_batched_tokens": seats + draw(SPARE_TOKENS), "max_model_len": draw(LENGTHS),
        "enable_prefix_caching": draw(FLAGS), "scheduling": draw(SCHEDULING),
    }  # fmt: skip
    return requests, limits


WORKLOADS = workloads()


@st.composite
def optioned_workloads(draw: st.DrawFn) -> tuple[list[dict], dict]:
    """`workloads` under vLLM's own options, each of which is on in half of all cases."""
    requests, limits = draw(WORKLOADS)
    limits |= {
        "long_prefill_token_threshold": draw(THRESHOLDS),
        "watermark": draw(WATERMARKS),
        "reserve_full_isl": draw(FLAGS),
        "prefill_schedule_interval": draw(INTERVALS),
        "chunked_prefill": draw(FLAGS),
    }
    if not limits["chunked_prefill"]:  # vLLM wants a step to hold the longest prompt then
        limits |= {"max_model_len": 80, "max_num_batched_tokens": limits["max_num_batched_tokens"] + 80}
    return requests, limits


def dates(request) -> tuple[float, float]:
    """First token and finish; -1 for what never happened."""
    return tuple(-1.0 if isnan(s) else s for s in (request.first_token_s, request.finished_s))


def assert_conserved(engine, requests: list[Request]) -> None:
    done = [r for r in requests if not r.rejected]
    meters = engine.meters(1e9)
    assert engine.waiting() == 0
    assert meters.output_tokens == sum(r.output_tokens for r in done)
    assert meters.prompt_tokens + meters.cached_tokens == sum(r.prompt_tokens for r in done)
    assert all(cache.free == cache.usable for cache in engine.caches())
    assert all(r.finished_s >= r.first_token_s >= r.started_s >= r.arrived_s for r in done)


def some_evictions(usual: list[tuple[float, float, float]], seed: int) -> list[tuple[float, int]]:
    """Every second request, near its *usual* timestamps: waiting, in mid-step, on a boundary, or too late."""
    dice = random.Random(seed)
    arrivals = {arrived_s for arrived_s, *_ in usual}
    evictions = []
    for place, (arrived_s, first_s, last_s) in enumerate(usual):
        near_s = dice.choice([arrived_s, first_s, first_s, last_s])
        at_s = near_s + BASE * dice.choice([0, dice.randint(-4, 4) / 2, -0.25, dice.randint(1, 60)])
        if dice.random() < 0.5 and at_s not in arrivals and not isnan(at_s):
            evictions.append((at_s, place))
    return evictions


def some_crashes(usual: list[tuple[float, float, float]], seed: int) -> list[float]:
    """Return at most one crash, in every second run, near the *usual* timestamps of a request: in a step or at its
    end."""
    dice = random.Random(seed + 1)
    at_s = dice.choice(dice.choice(usual)) + BASE * dice.choice(
        [0, dice.randint(-4, 4) / 2, -0.25, dice.randint(1, 60)]
    )
    arrivals = {arrived_s for arrived_s, *_ in usual}
    return [at_s] if dice.random() < 0.5 and at_s > 0 and at_s not in arrivals else []


def timestamps(tracked: list) -> list[tuple[float, float, float]]:
    """(arrival, first token, finish) of what an engine has served."""
    return [(one.request.arrived_s, one.first_token_s, one.finished_s) for one in tracked]
