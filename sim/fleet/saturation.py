"""Runs of one saturated engine under several step-time models, whose steps are simulated once.

`SaturatedSteps` records the steps of an engine whose clients send their next request as soon as the one before is
finished, and repeats them under the step times of other plans (`RetimedEngine`).
"""

from dataclasses import replace

from sim.batching import Vllm
from sim.engine.metering import RecordedSteps
from sim.engine.protocol import ReplicaEngine
from sim.engine.retimed import RetimedEngine
from sim.engine.synchronous import RankEngine
from sim.fleet.arrivals import collector_paused
from sim.fleet.clock import FleetClock
from sim.fleet.fleet import RunningFleet
from sim.fleet.intake import IntakeEngine
from sim.fleet.metering import MeterLog
from sim.fleet.pool import rank_limits
from sim.fleet.replica import Replica, State
from sim.records import Batch, FleetLog, Leap
from sim.scenario.resolving.resolved import CasePlan

TURN_STEPS = 1e-9
"""Time between requests that arrive together at an engine whose steps are counted [steps]."""


def is_saturated(plan: CasePlan) -> bool:
    """Return whether *plan* has one engine and clients without think time, so that its steps can be retimed."""
    if len(plan.pools) != 1 or plan.horizon_s is None or plan.drain_limit_s != 0.0:
        return False
    pool, loop, workload = plan.pools[0], plan.workload.closed_loop(), plan.workload
    batching = pool.batching
    if loop is None or loop.think_s or loop.num_requests is not None:
        return False
    if workload.shared_prefix or workload.sessions or workload.sent_before:
        return False
    if workload.tenants or workload.uses_adapters:
        return False
    if pool.replicas * pool.data_parallel_size * pool.pipeline_parallel_size > 1 or pool.models or pool.kv_tiers:
        return False
    if plan.services or plan.kv_transfer or plan.may_retry or plan.switched or plan.cost_per_request or pool.intake_s:
        return False
    if not isinstance(batching, Vllm) or batching.speculative or batching.scheduling != "fcfs":
        return False
    return not rank_limits(pool).caches_states  # such engines have several batches in flight and record no steps


class SaturatedSteps:
    """Recorded steps of a saturated engine, in an order that does not depend on their durations."""

    def __init__(self, plan: CasePlan) -> None:
        """Prepare to record the engine of *plan*, for which `is_saturated` is true."""
        pool, loop = plan.pools[0], plan.workload.closed_loop()
        assert loop is not None
        self._clients = loop.concurrency
        self._recorded: list[RecordedSteps] = []
        self._refuses = False
        """True once a request has been refused."""
        turn_s = min(pool.turn_s, TURN_STEPS)
        counted = replace(pool, steptime=CountedSteps(pool.steptime.window), turn_s=turn_s, second_power=None)
        self._fleet = RunningFleet(replace(plan, pools=(counted,), horizon_s=None, warmup_s=0.0), self._watch)

    def _watch(self, engine: ReplicaEngine, replica: int) -> ReplicaEngine:
        inner = engine.engine if isinstance(engine, IntakeEngine) else engine
        assert isinstance(inner, RankEngine)
        inner.record = self._recorded
        return engine

    def _more(self) -> bool:
        """Record further steps. Return False if a request is refused, since its client pauses then."""
        count = len(self._recorded)
        while len(self._recorded) == count and not self._refuses:
            self._refuses = not self._fleet.step() or self._fleet.state[0] != self._clients
        return not self._refuses

    def retimed(self, plan: CasePlan) -> FleetLog | None:
        """Return the log of *plan*, or None if its engine would take other steps than those recorded.

        The log lacks requests, cached tokens, and times in which requests waited for places, KV blocks or the token
        budget of a step. *plan* may differ from the recorded one in step times, power, GPUs and prices only.
        """
        pool = plan.pools[0]
        assert isinstance(pool.batching, Vllm)
        assert plan.horizon_s is not None
        with collector_paused():
            ahead, turn_s = bool(pool.batching.async_scheduling), pool.turn_s
            limits = rank_limits(pool)
            engine = RetimedEngine(pool.steptime, limits, self._recorded, self._more, ahead, self._clients, turn_s)
            replica = Replica(FleetClock(), engine, 0, 0, lambda until_s: None, lambda replica, requests, end_s: None)
            log = MeterLog(plan, [replica], [State.SERVING])
            for reading_s in log.fixed_readings():
                engine.run(reading_s)
                log.read(reading_s)
            return log.close(plan.horizon_s, []) if engine.exact else None


class CountedSteps:
    """Step-time model of steps that take one second each."""

    def __init__(self, window: int | None) -> None:
        self._window = window

    @property
    def window(self) -> int | None:
        """Sliding window of the model [tokens]; None without one."""
        return self._window

    def leap(self, batch: Batch) -> Leap:
        """Return the durations of the next steps of *batch*."""
        return Leap(1.0)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the duration of the first step by cause [s]."""
        return {"overhead": 1.0}
