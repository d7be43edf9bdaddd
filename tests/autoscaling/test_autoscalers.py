"""Decisions of the autoscalers against tables worked by hand from their documentation."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from sim.autoscaling import Autoscaling
from sim.autoscaling.kubernetes import DEFAULT_SCALE_DOWN, DEFAULT_SCALE_UP, Behavior, Rules, recommendation
from sim.autoscaling.protocol import _Checked

SPECS: TypeAdapter[Any] = TypeAdapter(Autoscaling)


@dataclass
class Pool:
    """Pool as an autoscaler sees it, with values set by hand."""

    now: float = 0.0
    replicas: int = 1
    ready: int = 1
    held: int = 0
    values: list[float] = field(default_factory=list)
    totals: dict[float, float] = field(default_factory=dict)
    latency: float | None = None

    def per_replica(self, gauge: str, window_s: float) -> list[float]:
        return self.values

    def total(self, gauge: str, window_s: float) -> float:
        return self.totals.get(window_s, sum(self.values))

    def latency_s(self, latency: str, quantile: float, window_s: float) -> float | None:
        return self.latency


def started(**keys: Any) -> Any:
    return SPECS.validate_python({"max_replicas": 100} | keys).start()


@pytest.mark.parametrize(
    ("values", "replicas", "wanted"),
    [
        ([200.0] * 3, 3, 6),  # the documentation's example: 200m against 100m doubles
        ([50.0] * 4, 4, 2),  # 50m halves
        ([109.0] * 10, 10, 10),  # within the tolerance of 0.1
        ([110.0] * 10, 10, 10),  # on its edge
        ([111.0] * 10, 10, 12),  # 11.1
        ([89.0] * 10, 10, 9),  # 8.9
        ([90.0] * 10, 10, 10),
        ([101.0], 1, 1),
        # scaling up, two without a metric count with 0: 600 / 5 = 120, ratio 1.2
        ([200.0] * 3, 5, 6),
        # ... and 400 / 5 = 80 would turn the direction round
        ([200.0] * 2, 5, 5),
        # scaling down, one without a metric counts with the target: (3 x 20 + 100) / 4 = 40, ratio 0.4
        ([20.0] * 3, 4, 2),
        # ... within the tolerance once they count: (85 + 3 x 100) / 4 = 96.25
        ([85.0], 4, 4),
    ],
)
def test_the_hpa_recommends_what_its_documentation_says(values: list[float], replicas: int, wanted: int) -> None:
    assert recommendation(values, replicas, target=100.0, tolerance=0.1) == wanted


def test_scaling_policies_as_in_the_documentation() -> None:
    # "if there are 80 replicas and the target has to be scaled down to 10": 8 a minute, 10 % of 72 is rounded up to 8,
    # below 40 replicas 4 pods are more than 10 %
    slow = Rules.model_validate({"policies": [{"type": "pods", "value": 4, "period_s": 60},
                                              {"type": "percent", "value": 10, "period_s": 60}]})  # fmt: skip
    behavior, replicas, seen = Behavior(0, 0, DEFAULT_SCALE_UP, slow), 80, []
    for minute in range(12):
        replicas = behavior.applied(60.0 * minute, replicas, 10, 1, 100)
        seen.append(replicas)
    assert seen == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16]
    # by default at most doubled or four more in 15 s, whichever is more
    behavior, replicas, seen = Behavior(0, 300), 1, []
    for period in range(5):
        replicas = behavior.applied(15.0 * period, replicas, 50, 1, 100)
        seen.append(replicas)
    assert seen == [5, 10, 20, 40, 50]
    # within one period nothing more is allowed
    behavior = Behavior(0, 300)
    assert [behavior.applied(at, n, 50, 1, 100) for at, n in [(0.0, 1), (5.0, 5), (14.0, 5), (15.0, 5)]] == [
        5,
        5,
        5,
        10,
    ]
    disabled = DEFAULT_SCALE_DOWN.model_copy(update={"select": "disabled"})
    assert Behavior(0, 0, DEFAULT_SCALE_UP, disabled).applied(0.0, 9, 1, 1, 100) == 9


def test_the_highest_recommendation_of_five_minutes_holds_on_the_way_down() -> None:
    hpa = started(policy="hpa", metric="outstanding_per_replica", target=10)
    seen, replicas = [], 4
    load = {0: 40, 15: 40, 30: 80}  # outstanding requests; from 45 s on 20
    for step in range(26):
        total = load.get(15 * step, 20)
        replicas = hpa.wanted(Pool(15.0 * step, replicas, replicas, values=[total / replicas] * replicas))
        seen.append(replicas)
    assert seen[:3] == [4, 4, 8]
    assert seen[3:22] == [8] * 19  # 45 to 315 s: the 8 of second 30 is younger than 300 s
    assert seen[22:] == [2] * 4  # from 330 s on
    assert started(policy="hpa", metric="gpu_busy", target=0.5).wanted(Pool(replicas=3)) == 3  # nothing scraped yet


def test_the_kpa_decides_as_its_source_says() -> None:
    """Target 10 x 0.7 = 7 a replica; stable window 60 s, panic window 6 s, panic from twice the ready replicas on."""
    kpa = started(policy="kpa", target=10)

    def at(now: float, ready: int, stable: float, panic: float, replicas: int | None = None) -> int:
        return kpa.wanted(Pool(now, ready if replicas is None else replicas, ready, totals={60.0: stable, 6.0: panic}))

    assert at(0, 1, 7.0, 7.0) == 1
    assert at(2, 1, 7.1, 7.1) == 2  # 2 / 1 ready is the panic threshold
    assert at(4, 2, 10.0, 27.9) == 4  # 3.99: in panic by the panic window
    assert at(6, 4, 10.0, 14.0) == 4  # no fewer while in panic
    assert at(62, 4, 20.0, 14.0) == 4  # 60 s after the last panic at 4 s: not over yet
    assert at(66, 4, 20.0, 14.0) == 3  # stable again: 2.86
    assert at(68, 8, 7.0, 7.0) == 4  # at most halved
    assert at(70, 1, 0.0, 0.0) == 1  # the grace period of scaling to zero
    assert at(98, 1, 0.0, 0.0) == 1
    assert at(100, 1, 0.0, 0.0) == 0
    assert at(102, 0, 0.0, 0.0) == 0
    # the activator holds a request: one replica at once
    assert kpa.wanted(Pool(103, 0, 0, held=1, totals={60.0: 0.0, 6.0: 0.0})) == 1
    # a pool of several begins in panic and keeps what it has for a stable window
    several = started(policy="kpa", target=10)
    assert several.wanted(Pool(0, 5, 5, totals={60.0: 7.0, 6.0: 7.0})) == 5
    assert several.wanted(Pool(62, 5, 5, totals={60.0: 7.0, 6.0: 7.0})) == 2
    assert started(policy="kpa", target=10, max_scale_up_rate=1.5).wanted(
        Pool(0, 1, 1, totals={60.0: 70.0, 6.0: 70.0})
    ) == 2  # fmt: skip


def test_keda_activates_cools_down_and_leaves_the_rest_to_the_hpa() -> None:
    keda = started(policy="keda", target=5)

    def at(now: float, replicas: int, waiting: float) -> int:
        return keda.wanted(Pool(now, replicas, replicas, totals={0.0: waiting}))

    assert at(0, 0, 0) == 0
    assert at(15, 0, 3) == 0  # polled every 30 s
    assert at(30, 0, 3) == 1
    assert at(45, 1, 23) == 5  # 4.6 replicas of 5 waiting each
    assert at(60, 5, 26) == 5  # within a tenth of 25
    assert at(360, 5, 0) == 1  # 300 s after the 5 of second 60: the HPA's window is over, KEDA's cooldown is not
    assert at(390, 1, 0) == 0  # more than 300 s after the last activity, at 60 s
    one = started(policy="keda", target=5, min_replicas=1)
    assert one.wanted(Pool(0, 1, 1, totals={0.0: 0.0})) == 1
    assert one.wanted(Pool(3600, 1, 1, totals={0.0: 0.0})) == 1


def test_aibrix_has_a_tolerance_and_a_rate_for_each_direction() -> None:
    def apa(values: list[float], **keys: Any) -> int:
        keys |= {"metric": "outstanding_per_replica", "target": 10, "scale_down_cooldown_s": 0}
        return started(policy="aibrix", **keys).wanted(Pool(replicas=len(values), ready=len(values), values=values))

    assert apa([11.0] * 4) == 4
    assert apa([11.1] * 4) == 5
    assert apa([50.0] * 4) == 8  # 20, at most doubled
    assert apa([9.0] * 4) == 4
    assert apa([7.5] * 4) == 3
    assert apa([1.0] * 8) == 4  # 1, at most halved
    assert apa([10.5], scale_up_tolerance=0.0) == 2


def test_dynamo_adds_one_worker_and_waits_before_it_removes_one() -> None:
    planner = started(policy="dynamo")

    def at(now: float, replicas: int, used: float, ready: int | None = None) -> int:
        return planner.wanted(Pool(now, replicas, replicas if ready is None else ready, values=[used] * replicas))

    assert at(30, 2, 0.91) == 3
    assert at(60, 3, 0.95, ready=2) == 3  # one is on its way
    assert at(90, 3, 0.4) == 3  # three intervals of grace
    assert at(120, 3, 0.4) == 3
    assert at(150, 3, 0.4) == 2
    assert at(180, 2, 0.7) == 2


def test_the_slo_scaler_follows_the_headroom() -> None:
    slo = started(policy="slo", ttft_s=1.0)
    assert slo.wanted(Pool(30, 4, 4, latency=0.7)) == 4
    assert slo.wanted(Pool(60, 4, 4, latency=1.0)) == 5  # 1.0 / 0.8
    assert slo.wanted(Pool(90, 5, 4, latency=9.0)) == 5  # the last one has not started yet
    assert slo.wanted(Pool(120, 5, 5, latency=9.0)) == 10  # at most doubled
    assert slo.wanted(Pool(390, 10, 10, latency=0.1)) == 10
    assert slo.wanted(Pool(420, 10, 10, latency=0.1)) == 9


def test_holt_winters_forecasts_as_worked_by_hand() -> None:
    # two buckets a season, 2 and 6 requests/s the day before: level 4, seasons -2 and +2; weights 0.5, 0.1, 0.3
    keys = {"policy": "predictive", "target_rps": 0.001, "margin": 0.0, "bucket_s": 43200, "lead_s": 43200}
    forecast = started(**keys, yesterday_rps=[2.0, 6.0])
    table = [
        # level 5, trend 0.1, season -1.4; expects 5 + 0.1 + 2
        (4.0, 7100),
        # level 6.05, trend 0.195, season 2.57; expects 6.05 + 0.195 - 1.4
        (9.0, 4845),
        # level 5.3225, trend 0.10275; expects 5.3225 + 0.10275 + 2.57 = 7.99525
        (3.0, 7996),
    ]
    for rate_rps, wanted in table:
        assert forecast.wanted(Pool(totals={43200.0: rate_rps})) == wanted


def test_keda_is_active_above_its_threshold_not_at_it() -> None:
    keda = started(policy="keda", target=5, activation_threshold=2.0)

    def at(now: float, replicas: int, waiting: float) -> int:
        return keda.wanted(Pool(now, replicas, replicas, totals={0.0: waiting}))

    assert at(0, 0, 0) == 0
    assert at(30, 0, 2) == 0
    assert at(60, 0, 3) == 1
    assert at(90, 1, 2) == 1  # not active, but the cooldown of 300 s has begun at 60 s
    assert at(360, 1, 2) == 1
    assert at(390, 1, 2) == 0


@pytest.mark.parametrize("method", ["holt_winters", "yesterday"])
def test_a_forecast_sees_the_second_day_coming(method: str) -> None:
    day = [2.0] * 6 + [20.0] * 6  # two-hourly rates
    keys = {"policy": "predictive", "method": method, "target_rps": 2.0, "margin": 0.0, "bucket_s": 7200}
    scaler = started(**keys, lead_s=7200, yesterday_rps=day)
    wanted = [scaler.wanted(Pool(totals={7200.0: rate})) for rate in day]
    assert wanted[:5] == [1] * 5
    assert wanted[5] == 10  # one bucket ahead of the rise
    blind = started(**keys, lead_s=7200)
    assert blind.wanted(Pool(totals={7200.0: 2.0})) == 1
    assert [blind.wanted(Pool(totals={7200.0: 20.0})) > 5 for _ in range(3)][-1]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"policy": "hpa", "metric": "gpu_busy", "target": 0.5, "max_replicas": None}, "max_replicas"),
        ({"policy": "hpa", "metric": "gpu_busy", "target": 0}, "target"),
        ({"policy": "hpa", "metric": "cpu", "target": 1}, "metric"),
        ({"policy": "hpa", "metric": "gpu_busy", "target": 70}, "never reached"),
        ({"policy": "aibrix", "metric": "kv_used", "target": 1.5}, "never reached"),
        ({"policy": "hpa", "metric": "gpu_busy", "target": 1, "min_replicas": 0}, "must be at least 1"),
        ({"policy": "kpa", "target": 1, "min_replicas": 101}, "must not exceed"),
        ({"policy": "slo"}, "needs a limit"),
        ({"policy": "dynamo", "kv_scale_down_threshold": 0.95}, "below"),
    ],
)
def test_invalid_autoscaler_keys_are_refused(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        started(**keys)


def test_thresholds_are_reached_beyond_them_and_not_at_them() -> None:
    def planned(used: float) -> int:
        planner = started(policy="dynamo", kv_scale_up_threshold=0.75, kv_scale_down_threshold=0.5)
        return planner.wanted(Pool(300, 4, 4, values=[used] * 4))

    assert [planned(used) for used in (0.76, 0.75, 0.5, 0.49)] == [5, 4, 4, 3]
    slo = {"policy": "slo", "ttft_s": 1.0, "scale_up_at": 0.75, "scale_down_at": 0.5}
    now = [started(**slo).wanted(Pool(300, 4, 4, latency=latency_s)) for latency_s in (0.76, 0.75, 0.5, 0.49)]
    assert now == [5, 4, 4, 3]


def test_the_slo_scaler_removes_a_replica_of_a_pool_without_requests() -> None:
    slo = started(policy="slo", tpot_s=0.1)
    assert slo.wanted(Pool(300, 4, 4, values=[0.0, 1.0])) == 4  # one is still to be answered
    assert slo.wanted(Pool(330, 4, 4)) == 3
    assert slo.wanted(Pool(600, 3, 3)) == 3  # 300 s after the last change from 330 s on
    assert slo.wanted(Pool(630, 3, 3)) == 2


def test_the_tighter_of_two_limits_counts() -> None:
    # 0.5 s are half of the limit of the first token and all of that of the others
    assert started(policy="slo", ttft_s=1.0, tpot_s=0.5).wanted(Pool(30, 4, 4, latency=0.5)) == 5
    assert started(policy="slo", ttft_s=1.0).wanted(Pool(30, 4, 4, latency=0.5)) == 4


def test_a_share_may_have_a_target_of_all() -> None:
    keys = {"policy": "hpa", "metric": "gpu_busy", "target": 1.0}
    assert started(**keys).wanted(Pool(0, 4, 4, values=[0.5] * 4)) == 4  # held for 300 s
    assert started(**keys, scale_down_stabilization_s=0).wanted(Pool(0, 4, 4, values=[0.5] * 4)) == 2


def test_yesterday_is_the_same_bucket_of_the_season_before() -> None:
    # two buckets a season; before a day is complete the last rate stays
    keys = {"policy": "predictive", "method": "yesterday", "target_rps": 1.0, "margin": 0.0, "bucket_s": 43200}
    scaler = started(**keys, lead_s=43200)
    assert [scaler.wanted(Pool(totals={43200.0: rate})) for rate in (3.0, 7.0, 4.0, 9.0)] == [3, 3, 7, 4]
    ahead = started(**keys, lead_s=86400)  # the highest of the next two
    assert [ahead.wanted(Pool(totals={43200.0: rate})) for rate in (3.0, 7.0, 4.0, 9.0)] == [3, 7, 7, 9]
    margin = started(**keys | {"margin": 0.5, "target_rps": 2.0}, lead_s=43200)
    assert margin.wanted(Pool(totals={43200.0: 4.0})) == 3


class Own:
    """Autoscaler of a user that always answers the same."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def wanted(self, seen: Any) -> Any:
        return self.answer


@pytest.mark.parametrize("answer", [True, 2.0, None, "3"])
def test_an_answer_that_is_no_number_of_replicas_is_refused(answer: Any) -> None:
    with pytest.raises(TypeError, match="autoscaler Own: wanted returns a number of replicas"):
        _Checked(Own(answer)).wanted(Pool())


def test_a_number_of_replicas_passes() -> None:
    assert [_Checked(Own(answer)).wanted(Pool()) for answer in (0, 7)] == [0, 7]
