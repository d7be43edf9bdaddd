"""vLLM's client: its score, its ties, and the age of what it knows, by hand."""

import numpy as np
import pytest

import sim
from sim.records import Request
from sim.routing.vllm_load_balancer import Balancer, VllmLoadBalancer

ANY = Request(0, 0.0, 10, 10)


def balancer(replicas: int, interval_s: float = 0.1) -> Balancer:
    spec = VllmLoadBalancer(policy="vllm_load_balancer", statistics_interval_s=interval_s)
    return spec.start(["a"] * replicas, np.random.default_rng(1))


def send(router: Balancer) -> int:
    chosen = router.choose(ANY)
    router.joined(chosen, ANY)
    return chosen


def test_a_waiting_request_weighs_as_much_as_four_that_run() -> None:
    router = balancer(2)
    router.attach(lambda: 0.0, [lambda: 1, lambda: 0])
    router.requests = [1, 4]  # one waits at the first; four run at the second: a tie, and the first is asked first
    assert [send(router) for _ in range(2)] == [0, 1]
    router = balancer(2)
    router.attach(lambda: 0.0, [lambda: 1, lambda: 0])
    router.requests = [1, 3]
    assert send(router) == 1


def test_ties_begin_one_rank_further_with_each_request() -> None:
    router = balancer(3)
    assert [send(router) for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    fresh = balancer(3, interval_s=0.0)
    # always fresh, and nobody waits: each request counts as one that runs
    assert [send(fresh) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_what_has_changed_since_the_last_statistics_is_not_known() -> None:
    now, router = 0.0, balancer(2)
    router.attach(lambda: now, [lambda: 0, lambda: 0])
    assert [send(router) for _ in range(4)] == [0, 1, 0, 1]
    for _ in range(2):
        router.left(1, ANY)
    now = 0.09
    assert [send(router), send(router)] == [0, 1]
    now = 0.1  # 3 run at the first, 1 at the second
    assert [send(router), send(router)] == [1, 0]


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
