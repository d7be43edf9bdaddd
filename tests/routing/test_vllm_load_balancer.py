"""vLLM's client: its score, its ties, and the age of what it knows, by hand."""

from collections import deque
from math import inf

import numpy as np
import pytest
from engine_workloads import Affine, rank_limits

import sim
from sim.engine.asynchronous import AsyncEngine
from sim.engine.schedulers.speculative import DraftScheduler
from sim.engine.synchronous import LockstepEngine, VllmEngine
from sim.records import Batch, Leap, Request
from sim.routing.vllm_load_balancer import Balancer, VllmLoadBalancer

ANY = Request(0, 0.0, 10, 10)


def balancer(replicas: int, interval_s: float = 0.1, score: str = "in_flight") -> Balancer:
    spec = VllmLoadBalancer(policy="vllm_load_balancer", statistics_interval_s=interval_s, score=score)
    return spec.start(["a"] * replicas, np.random.default_rng(1))


def send(router: Balancer) -> int:
    chosen = router.choose(ANY)
    router.joined(chosen, ANY)
    return chosen


def told(router: Balancer, waiting: list[int], kv_usage: list[float], now: float = 0.0) -> Balancer:
    router.attach(lambda: now, [lambda n=n: n for n in waiting], [lambda now, u=u: u for u in kv_usage])
    return router


def test_a_waiting_request_weighs_as_much_as_four_running_ones() -> None:
    router = told(balancer(2, score="queue"), [1, 0], [0, 0])
    router.requests = [1, 4]  # one waits at the first; four run at the second: a tie, and the first is asked first
    assert [send(router) for _ in range(2)] == [0, 1]
    router = told(balancer(2, score="queue"), [1, 0], [0, 0])
    router.requests = [1, 3]
    assert send(router) == 1


def test_requests_in_flight_count_and_a_queue_before_a_full_cache_weighs_more() -> None:
    # 4 and 3 in flight: the second one, and then a tie, which the second is asked about first
    router = told(balancer(2), [2, 0], [0.5, 0.5])
    router.requests = [4, 3]
    assert [send(router), send(router)] == [1, 1]
    # 4 in flight and 6 x 2 waiting x 0.4, against 8 in flight of which nobody waits: 8.8 and 8
    router = told(balancer(2), [2, 0], [0.9, 0.9])
    router.requests = [4, 8]
    # then one waits there: 9 + 6 x 1 x 0.4
    assert [send(router), send(router)] == [1, 0]
    # who was sent counts until the next statistics, though it has left
    router.requests = [0, 0]
    assert send(router) == 1


def test_ties_begin_one_rank_further_with_each_request() -> None:
    router = balancer(3)
    assert [send(router) for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    fresh = balancer(3, interval_s=0.0)
    # always fresh, and nobody waits: each request counts as one that runs
    assert [send(fresh) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_changes_since_the_last_statistics_are_unknown() -> None:
    now, router = 0.0, balancer(2, score="queue")
    router.attach(lambda: now, [lambda: 0, lambda: 0], [lambda now: 0.0] * 2)
    assert [send(router) for _ in range(4)] == [0, 1, 0, 1]
    for _ in range(2):
        router.left(1, ANY)
    now = 0.09
    assert [send(router), send(router)] == [0, 1]
    now = 0.1  # 3 run at the first, 1 at the second
    assert [send(router), send(router)] == [1, 0]


class OneByOne(Affine):
    """Step time model that prevents leaps of several steps."""

    def leap(self, batch: Batch) -> Leap:
        leap = super().leap(batch)
        return Leap(leap.first_s, leap.growth_s, 1)


@pytest.mark.parametrize("kind", ["plain", "drafts", "ahead", "lockstep"])
def test_a_leap_uses_as_many_kv_blocks_at_any_time_as_its_steps(kind: str) -> None:
    limits = rank_limits(60, 4, 6, 50, 400, draft_tokens=2, accepts=lambda request, tokens: 1.3)
    seen = []
    for steptime in (Affine(), OneByOne()):
        engine = {
            "plain": lambda s=steptime: VllmEngine(s, limits),
            "drafts": lambda s=steptime: VllmEngine(s, limits, DraftScheduler),
            "ahead": lambda s=steptime: AsyncEngine(s, limits),
            "lockstep": lambda s=steptime: LockstepEngine(s, limits, 2),
        }[kind]()
        coming = deque(Request(i, i / 7, 10 + 3 * i, 40 + i) for i in range(12))
        end_s, usage = inf, []
        for now in np.arange(600) / 160 + 0.0001:
            while end_s <= now:
                engine.advance()
                end_s = engine.plan(end_s)
            if coming and coming[0].arrived_s <= now and engine.offer(coming.popleft(), now):
                end_s = engine.plan(now)
            usage.append(engine.kv_usage(now))
        seen.append(usage)
    assert seen[0] == seen[1]
    assert max(seen[0]) > 0.7
    assert len(set(seen[0])) > 20


@pytest.mark.slow
@pytest.mark.parametrize("interval_s", [0.0, 0.1])
def test_ranks_share_a_load(interval_s: float) -> None:
    step = {"model": "affine", "base_s": 0.01, "per_token_s": 0.0, "per_context_token_s": 0.0}
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 100, "num_gpu_blocks": 100, "max_model_len": 1000}
    pool = {"steptime": step, "data_parallel_size": 3, "batching": {"policy": "vllm"} | limits}
    routing = {"policy": "vllm_load_balancer", "statistics_interval_s": interval_s}
    times = {"arrived_s": np.arange(30) / 100, "prompt_tokens": [10] * 30, "output_tokens": [20] * 30}
    done = sim.simulate(times, {"pools": [pool], "routing": routing})
    assert done.replica.value_counts().between(8, 12).all()
    assert (done.status == "finished").all()
