"""Requests that are taken from one replica and sent to another: none is lost, and every visit is on record."""

from itertools import pairwise
from math import inf, isnan

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.limits import RankLimits
from sim.engine.synchronous import VllmEngine
from sim.fleet.arrivals import Clock
from sim.fleet.replica import Replica
from sim.records import Batch, Leap, Progress, Request

LIMITS = RankLimits(num_gpu_blocks=40, block_size=4, max_num_seqs=4, max_num_batched_tokens=32, max_model_len=1000)


class Affine:
    """A sixty-fourth of a second and a little for each token."""

    window = None

    def leap(self, batch: Batch) -> Leap:
        return Leap(2**-6 + 2**-12 * (batch.decode_seqs + batch.prefill_tokens))


class Two:
    """Two replicas; each request begins at the first."""

    def __init__(self, rows: list[Request]) -> None:
        self.env = Clock()
        self.finished: list[Request] = []
        self.engines = [VllmEngine(Affine(), LIMITS) for _ in range(2)]
        self.replicas = [
            Replica(self.env, engine, index, 0, lambda until_s: None, lambda _, done, end_s: self.finished.extend(done))
            for index, engine in enumerate(self.engines)
        ]
        for request in rows:
            self.at(request.arrived_s, lambda request=request: self.send(request, 0))

    def at(self, at_s: float, call) -> None:
        self.env.timeout(at_s).callbacks.append(lambda _: call())

    def send(self, request: Request, index: int) -> None:
        now, replica = self.env.now, self.replicas[index]
        request.replica, request.came_s = index, now
        if replica.offer(request, now):
            replica.replan(now)

    def move(self, request: Request) -> None:
        source = request.replica
        if source >= 0 and isnan(request.finished_s) and self.replicas[source].evict([request], self.env.now):
            self.send(request, 1 - source)


@given(
    rows=st.lists(st.tuples(st.integers(0, 100), st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=12),
    moves=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 11)), max_size=25),
)
@settings(max_examples=40, deadline=None)
def test_requests_that_move_are_finished_once(rows, moves) -> None:
    requests = [Request(i, at / 64, prompt, output) for i, (at, prompt, output) in enumerate(sorted(rows))]
    fleet = Two(requests)
    for at, place in moves:
        if place < len(requests):
            fleet.at(at / 128, lambda request=requests[place]: fleet.move(request))
    while fleet.env.peek() < inf:
        fleet.env.step()
    assert sorted(one.index for one in fleet.finished) == list(range(len(requests)))
    assert all(cache.free == cache.usable for engine in fleet.engines for cache in engine.caches())
    for request in requests:
        hops = request.hops
        assert [hop.replica for hop in hops] == [place % 2 for place in range(len(hops))]
        assert hops[0].came_s == request.arrived_s
        assert hops[-1].left_s == request.finished_s
        assert all(a.left_s == b.came_s for a, b in pairwise(hops))
        assert all(hop.progress.output_tokens < request.output_tokens for hop in hops[:-1])
        assert hops[-1].progress is None
    made = sum(engine.meters(1e9).output_tokens for engine in fleet.engines)
    kept = sum(r.output_tokens + sum(hop.progress.output_tokens for hop in r.left) for r in requests)
    visits = sum(len(r.left) for r in requests)
    assert kept <= made <= kept + visits


def test_a_prompt_begun_elsewhere_is_computed_again() -> None:
    request = Request(0, 0.0, 60, 3)
    fleet = Two([request])
    # two steps compute the prompt and make the first token
    fleet.at(2.5 * (2**-6 + 2**-12 * 32), lambda: fleet.move(request))
    while fleet.env.peek() < inf:
        fleet.env.step()
    first, second = (engine.meters(1e9) for engine in fleet.engines)
    assert request.left[0].progress == Progress(60, 1)
    assert (first.prompt_tokens, first.recomputed_tokens) == (60, 0)
    assert (second.prompt_tokens, second.recomputed_tokens) == (0, 60)
    assert second.prefill_s == 0 < second.recompute_s
