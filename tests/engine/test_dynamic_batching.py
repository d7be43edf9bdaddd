"""Dynamic batches: hand-worked times, laws, and queueing theory of bulk service with a timeout."""

from collections import Counter
from collections.abc import Sequence
from math import exp, factorial, inf

import numpy as np
import pytest

from sim.batchtime.one_pass import AffineBatch
from sim.engine.dynamic_batching import DynamicEngine
from sim.records import Batch, BusyTime, Leap, Request


def engine(base_s: float, per_item_s: float, size: int, delay_s: float = 0.0, instances: int = 1) -> DynamicEngine:
    steptime = AffineBatch(model="affine_batch", base_s=base_s, per_item_s=per_item_s)
    return DynamicEngine(steptime, size, delay_s, instances)


def served(one: DynamicEngine, arrivals_s: Sequence[float]) -> list[Request]:
    """The requests that arrive at these times, answered; the loop does what the fleet does."""
    requests = [Request(index, at_s, 0, 1, busy=BusyTime()) for index, at_s in enumerate(arrivals_s)]
    end_s = inf
    for request in requests:
        while end_s < request.arrived_s:
            one.advance()
            end_s = one.plan(end_s)
        if one.offer(request, request.arrived_s):
            end_s = one.plan(request.arrived_s)
    while end_s < inf:
        one.advance()
        end_s = one.plan(end_s)
    return requests


def batches(requests: Sequence[Request]) -> list[int]:
    """Sizes of the batches in which *requests* were answered by one instance."""
    return list(Counter(request.started_s for request in requests).values())


def test_a_free_instance_starts_the_waiting_requests_and_later_ones_wait_for_its_end() -> None:
    found = served(engine(0.010, 0.001, 4), [0.0, 0.001, 0.002, 0.003, 0.004, 0.005])
    assert [one.started_s for one in found] == pytest.approx([0.0] + [0.011] * 4 + [0.025])
    assert [one.finished_s for one in found] == pytest.approx([0.011] + [0.025] * 4 + [0.036])


def test_a_batch_waits_for_others_until_it_is_full_or_its_oldest_has_waited_enough() -> None:
    found = served(engine(0.010, 0.001, 3, delay_s=0.005), [0.0, 0.002, 0.020, 0.021, 0.022])
    assert [one.started_s for one in found] == pytest.approx([0.005, 0.005, 0.022, 0.022, 0.022])


def test_the_delay_counts_from_the_arrival_and_not_from_the_free_instance() -> None:
    found = served(engine(0.010, 0.0, 2, delay_s=0.004), [0.0, 0.0, 0.003])
    assert [one.started_s for one in found] == pytest.approx([0.0, 0.0, 0.010])


def test_instances_share_the_gpu_evenly() -> None:
    found = served(engine(0.010, 0.0, 1, instances=2), [0.0, 0.004])
    assert [one.finished_s for one in found] == pytest.approx([0.016, 0.020])


class PartlyBusy:
    """Batches of ten milliseconds that keep the GPU busy for a part of them."""

    window = None

    def __init__(self, load: float) -> None:
        self.load = load

    def leap(self, batch: Batch) -> Leap:
        return Leap(0.010, load=self.load)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        return {}


@pytest.mark.parametrize(
    ("load", "ends_s", "load_s"),
    [
        (0.4, [0.010, 0.014], 0.4 * 0.020),  # 0.8 of the GPU together: nobody is slowed
        (0.8, [0.0136, 0.0176], 0.8 * 0.020),  # 1.6: 6 ms of work left at 4 ms take 9.6
        (1.0, [0.016, 0.020], 0.020),  # as time slicing
    ],
)
def test_mps_slows_instances_that_need_more_than_the_gpu(load: float, ends_s: list[float], load_s: float) -> None:
    one = DynamicEngine(PartlyBusy(load), 1, 0.0, 2, mps=True)
    assert [request.finished_s for request in served(one, [0.0, 0.004])] == pytest.approx(ends_s)
    assert one.meters(0.030).load_s == pytest.approx(load_s)


def test_an_arrival_when_a_batch_is_due_joins_it() -> None:
    found = served(engine(0.010, 0.0, 8, delay_s=0.5), [0.0, 0.5, 0.75])
    assert [one.started_s for one in found] == pytest.approx([0.5, 0.5, 1.25])


@pytest.mark.parametrize(("size", "delay_s", "instances"), [(1, 0.0, 1), (4, 0.0, 3), (4, 0.01, 1), (3, 0.004, 2)])
def test_meters_count_what_was_done(size: int, delay_s: float, instances: int) -> None:
    one = engine(0.004, 0.001, size, delay_s, instances)
    arrivals = np.cumsum(np.random.default_rng(5).exponential(0.004, 300))
    one.share_time(True, 0.0)
    found = served(one, arrivals.tolist())
    totals = one.meters(1e9)
    sizes = Counter(request.finished_s for request in found)
    assert all(request.finished_s >= request.started_s >= request.arrived_s for request in found)
    assert totals.output_tokens == 300
    assert max(sizes.values()) <= size * instances
    assert totals.busy_s == pytest.approx(totals.steps * 0.004 + 300 * 0.001)
    assert sum(request.busy.decode_s for request in found) == pytest.approx(totals.busy_s)
    assert totals.load_s == pytest.approx(totals.busy_s)


def test_an_evicted_request_leaves_no_trace_and_its_batch_continues() -> None:
    one = engine(0.010, 0.0, 2)
    first, second, third = (Request(index, 0.0, 0, 1) for index in range(3))
    for request in (first, second, third):
        one.offer(request, 0.0)
    assert one.plan(0.0) == 0.010
    one.evict(first, 0.002)
    one.evict(third, 0.002)
    assert one.plan(0.002) == pytest.approx(0.010)
    assert one.advance() == [second]
    assert one.plan(0.010) == inf
    assert np.isnan(first.finished_s)


def chain(rate: float, size: int, base_s: float, per_item_s: float, most: int = 120) -> np.ndarray:
    """Batch sizes 1 ... *size* of M/D(k)/1 with bulk service, from the Markov chain of the queue at ends of batches."""

    def arrivals(busy_s: float) -> np.ndarray:
        mean = rate * busy_s
        return np.array([exp(-mean) * mean**k / factorial(k) for k in range(most)])

    moves = np.zeros((most, most))
    for waiting in range(most):
        taken = min(max(waiting, 1), size)  # an empty system waits for one arrival
        left = max(waiting - taken, 0)
        moves[waiting, left:] = arrivals(base_s + taken * per_item_s)[: most - left]
    moves /= moves.sum(axis=1, keepdims=True)
    system = np.vstack([moves.T - np.eye(most), np.ones(most)])
    stationary = np.linalg.lstsq(system, np.append(np.zeros(most), 1.0), rcond=None)[0]
    sizes = np.minimum(np.maximum(np.arange(most), 1), size)
    return np.array([stationary[sizes == taken].sum() for taken in range(1, size + 1)])


@pytest.mark.slow
@pytest.mark.parametrize(("base_s", "per_item_s"), [(1.0, 0.0), (0.4, 0.15)])
def test_batch_sizes_are_those_of_the_markov_chain(base_s: float, per_item_s: float) -> None:
    rate, size = 3.0, 6
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / rate, 30_000))
    sizes = np.array(batches(served(engine(base_s, per_item_s, size), arrivals.tolist())))
    law = chain(rate, size, base_s, per_item_s)
    found = np.array([(sizes == taken).mean() for taken in range(1, size + 1)])
    # 99.9 % of the chance of a share of n correlated batches
    assert np.all(np.abs(found - law) < 3.3 * np.sqrt(3 * law * (1 - law) / len(sizes)) + 1e-4)


@pytest.mark.slow
def test_waiting_of_m_d_1_with_batches_of_one_is_pollaczek_khinchine() -> None:
    rate, service_s = 0.6, 1.0
    arrivals = np.cumsum(np.random.default_rng(2).exponential(1 / rate, 25_000))
    found = served(engine(service_s, 0.0, 1), arrivals.tolist())
    waited = np.mean([one.started_s - one.arrived_s for one in found])
    assert waited == pytest.approx(rate * service_s**2 / (2 * (1 - rate * service_s)), rel=0.05)


@pytest.mark.slow
def test_the_timeout_alone_makes_batches_of_one_and_a_poisson_number() -> None:
    rate, delay_s = 2.0, 1.5
    arrivals = np.cumsum(np.random.default_rng(3).exponential(1 / rate, 20_000))
    found = served(engine(1e-9, 0.0, 1000, delay_s), arrivals.tolist())
    mean = rate * delay_s
    sizes = np.array(batches(found))
    for taken in range(1, 9):
        law = exp(-mean) * mean ** (taken - 1) / factorial(taken - 1)
        assert abs((sizes == taken).mean() - law) < 3.3 * np.sqrt(law * (1 - law) / len(sizes))
    waited = np.mean([one.started_s - one.arrived_s for one in found])
    assert waited == pytest.approx((delay_s + mean * delay_s / 2) / (1 + mean), rel=0.015)
