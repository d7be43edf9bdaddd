"""Meter readings as intervals: the work and energy of each replica between two readings."""

from dataclasses import fields

from sim.fleet.arrivals import Send
from sim.fleet.replica import STATE_PROPERTIES, Replica, State
from sim.power import PoolPower
from sim.records import BusyTime, FleetLog, Interval, Meters, Request
from sim.scenario.resolving.resolved import CasePlan, PoolPlan


def with_busy_times(send: Send) -> Send:
    """Return *send* behind a step that gives every request its own `BusyTime`."""

    def give(requests: list[Request], now: float) -> None:
        for request in requests:
            request.busy = BusyTime()
        send(requests, now)

    return give


class MeterLog:
    """Log of meter readings: at the window's edges, every `meter_interval_s`, and before state changes."""

    def __init__(self, plan: CasePlan, replicas: list[Replica], states: list[State]) -> None:
        """Start the readings. *states* is the list of current states, which the replicas' lifecycle updates."""
        self._plan = plan
        self._replicas = replicas
        self._states = states
        self._read_s = 0.0
        self._last_s = [0.0] * len(replicas)
        self._last = [Meters() for _ in replicas]
        self._intervals: list[Interval] = []
        self._second_intervals: list[Interval] = []
        self._at_warmup = [Meters() for _ in replicas]
        self._at_horizon: list[Meters] | None = None
        if not plan.warmup_s:
            self._share_time(True, 0.0)

    def fixed_readings(self) -> list[float]:
        """Return the fixed reading times [s]: warm-up, horizon and those between.

        Without a horizon only the warm-up is fixed.
        """
        plan = self._plan
        if plan.horizon_s is None:
            return [plan.warmup_s] if plan.warmup_s else []
        times = {plan.warmup_s, plan.horizon_s} - {0.0}
        reading_s = plan.next_reading_s(0.0)
        while reading_s < plan.horizon_s:
            times.add(reading_s)
            reading_s = plan.next_reading_s(reading_s)
        return sorted(times)

    def read(self, now: float) -> None:
        """Close the current interval of every replica at *now*."""
        if now <= self._read_s:
            return
        self._read_s = now
        for replica in self._replicas:
            self.read_replica(replica.index, now)
        if now == self._plan.warmup_s:
            self._at_warmup = list(self._last)
            self._share_time(True, now)
        if now == self._plan.horizon_s:
            self._at_horizon = list(self._last)
            self._share_time(False, now)

    def read_replica(self, index: int, now: float) -> None:
        """Close the current interval of one replica at *now*, with the state it has been in."""
        before_s, before = self._last_s[index], self._last[index]
        if now > before_s:
            replica = self._replicas[index]
            self._last[index] = after = replica.engine.meters(now)
            self._last_s[index] = now
            used = _difference(after, before)
            self._intervals.append(self._interval(replica, before_s, now, used))
            if self._plan.pools[replica.pool].second_power is not None:
                self._second_intervals.append(self._interval(replica, before_s, now, used, second=True))

    def _share_time(self, on: bool, now: float) -> None:
        """Start or stop attributing busy time to requests, where the case needs their costs."""
        if self._plan.cost_per_request:
            for replica in self._replicas:
                replica.engine.share_time(on, now)

    def close(self, end_s: float, requests: list[Request]) -> FleetLog:
        """Take the last reading, at *end_s*, and return the log of the run."""
        self.read(end_s)
        window_end = self._at_horizon or self._last
        totals = [_difference(after, before) for after, before in zip(window_end, self._at_warmup, strict=True)]
        pools = [replica.pool for replica in self._replicas]
        return FleetLog(requests, self._intervals, totals, pools, end_s, second_intervals=self._second_intervals)

    def _interval(self, replica: Replica, start_s: float, end_s: float, used: Meters, second: bool = False) -> Interval:
        """Return the interval of *replica* with the meters *used*; *second*: with the energy under its second power."""
        pool = self._plan.pools[replica.pool]
        horizon_s = self._plan.horizon_s
        duration_s = end_s - start_s
        gpus = pool.gpus_per_engine
        state = self._states[replica.index]
        if state is State.SERVING and horizon_s is not None and end_s > horizon_s:
            state = State.DRAINING
        interval = Interval(
            service=pool.service,
            pool=pool.name,
            server=pool.server,
            replica=replica.index,
            state=state.value,
            start_s=start_s,
            end_s=end_s,
            gpu_s=float(gpus * duration_s),
            busy_s=used.busy_s,
            prefill_s=used.prefill_s,
            recompute_s=used.recompute_s,
            prompt_tokens=used.prompt_tokens,
            cached_tokens=used.cached_tokens,
            output_tokens=used.output_tokens,
            recomputed_tokens=used.recomputed_tokens,
        )
        if pool.slices is not None:
            interval.unused = float(pool.slices.unused)
        power = pool.second_power if second else pool.power
        if power is not None:
            interval.peak_w = float(gpus / pool.gpus_per_replica) * power.peak_w
            if STATE_PROPERTIES[state].powered:
                loads_s = used.load_s, used.prefill_load_s, used.recompute_load_s
                if second:
                    loads_s = used.second_load_s, used.second_prefill_load_s, used.second_recompute_load_s
                _add_energy(interval, pool, power, used, loads_s)
        return interval


def _add_energy(
    interval: Interval, pool: PoolPlan, power: PoolPower, used: Meters, loads_s: tuple[float, float, float]
) -> None:
    """Set the energy of *interval*: the engine's share of the GPUs and server of its replica.

    *loads_s* are the integrals of the load over all steps, over prompts and over recomputed tokens [s].
    """
    load_s, prefill_load_s, recompute_load_s = loads_s
    share = float(pool.gpus_per_engine / pool.gpus_per_replica)
    duration_s, used_part = interval.end_s - interval.start_s, 1 - interval.unused
    interval.gpu_energy_j = share * power.gpu_energy_j(duration_s, load_s)
    interval.server_energy_j = share * power.server_energy_j(duration_s, interval.gpu_energy_j / share)
    interval.prefill_energy_j = share * _wall_j(power, used_part * used.prefill_s, prefill_load_s)
    interval.recompute_energy_j = share * _wall_j(power, used_part * used.recompute_s, recompute_load_s)
    interval.idle_energy_j = share * _wall_j(power, max(0.0, duration_s - used_part * used.busy_s), 0.0)


def _wall_j(power: PoolPower, duration_s: float, load_s: float) -> float:
    """Return the energy of one replica at the wall [J].

    It is linear in both arguments, so that parts of a duration add up.
    """
    return power.server_energy_j(duration_s, power.gpu_energy_j(duration_s, load_s))


def _difference(after: Meters, before: Meters) -> Meters:
    """Return the increase of the totals between two readings; the KV peak is the peak so far."""
    used = Meters(**{f.name: getattr(after, f.name) - getattr(before, f.name) for f in fields(Meters)})
    used.kv_peak_blocks = after.kv_peak_blocks
    return used
