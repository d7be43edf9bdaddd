"""Made-up finished cases: two fleets whose latency grows towards a capacity of their own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sim.study.metrics.case_metrics import CaseMetrics

SLO = {"ttft_s": 3.0, "tpot_s": 0.1, "e2e_s": None, "attainment": 0.95}


@dataclass
class MadeUpCase:
    fleet: str
    axes: dict[str, Any]
    replication: int = 0
    status: str = "ok"
    reason: str = ""
    measured: dict[str, Any] = field(default_factory=dict)

    @property
    def metrics(self) -> CaseMetrics:
        return CaseMetrics.of_data(self.measured)

    def set(self, **figures: Any) -> None:
        self.measured |= figures

    def requests(self) -> pa.Table:
        ttft = np.geomspace(0.1, 5.0, 50) * self.metrics["ttft_s_p50"]
        start = np.arange(50) * 1.5
        tokens = np.full(50, 100)
        finished = np.arange(50) < 49
        columns = {
            "request": np.arange(50), "service": ["default"] * 50, "pool": ["gpu"] * 50, "replica": 0 * tokens,
            "priority": 0 * tokens, "measured": (np.arange(50) % 10 > 0).astype(int), "arrived_s": start,
            "started_s": start + ttft / 2, "first_token_s": start + ttft,
            "finished_s": np.where(finished, start + ttft + 99 * self.metrics["tpot_s_p50"], np.nan),
            "prompt_tokens": tokens, "output_tokens": tokens, "cached_tokens": 0 * tokens, "preemptions": 0 * tokens,
            "slo_met": (ttft < 3).astype(int), "status": np.where(finished, "finished", "unfinished").tolist(),
        }  # fmt: skip
        return pa.table(columns)

    def request_columns(self) -> list[str]:
        return list(self.requests().column_names)

    def usage(self) -> pa.Table:
        names = ["service", "pool", "server"]
        numbers = ["start_s", "end_s", "gpu_s", "busy_s", "gpu_energy_j", "server_energy_j", "peak_w"]
        counts = ["replica", "prompt_tokens", "cached_tokens", "output_tokens", "recomputed_tokens"]
        figures = {n: [1.5] for n in numbers} | {"start_s": [0.0], "state": ["serving"]} | {n: [3] for n in counts}
        return pa.table({n: ["x"] for n in names} | figures)

    def costs(self) -> pa.Table:
        names = ["pool", "server", "component", "phase", "unit", "currency", "source"]
        numbers = ["start_s", "end_s", "quantity", "unit_price_usd", "amount_usd", "amount_in_currency", "fx_rate"]
        rows = 0 if self.metrics["cost_usd"] is None else 2
        words = {name: pa.array(["y"] * rows, pa.string()) for name in names}
        figures = {name: pa.array([0.1] * rows, pa.float64()) for name in numbers}
        return pa.table(words | figures | {"start_s": pa.array([0.0] * rows, pa.float64())})


def made_up(
    fleet: str, load: float, replication: int = 0, *, capacity: float, usd_per_h: float | None, **axes: Any
) -> MadeUpCase:
    """A case whose requests all meet the SLO until the load nears the capacity [req/s]."""
    noise = 1 + 0.04 * np.random.default_rng([replication, int(100 * load)]).standard_normal()
    busy, over, served = min(load / capacity, 1.0), load > capacity, min(load, capacity)
    ttft = (60.0 * load / capacity if over else 0.18 / (1.02 - busy) + 0.12) * noise
    tpot = (0.022 + 0.07 * busy**1.5) * noise / capacity**0.25
    attained = 0.02 if over else min(1.0, 1.0 - max(0.0, (ttft - 1.2) / 12) - max(0.0, (tpot - 0.09) / 0.2))
    hours, output = 1680 / 3600, 256 * served * 1680
    metrics: dict[str, Any] = {
        "requests": round(load * 1680), "completed": round(served * 1680), "rejected": 0,
        "unfinished": round((load - served) * 1680), "offered_rps": load, "requests_per_s": served,
        "output_tokens_per_s": 256 * served, "total_tokens_per_s": 768 * served, "goodput_rps": served * attained,
        "slo_attainment": attained, "slo_shares": [attained], "overloaded": over,
        "limited_by": "kv" if busy > 0.8 else "memory", "queue_s_p95": ttft / 2, "batch_mean": 40 * busy,
        "gpu_busy_fraction": busy, "kv_used_peak_fraction": min(1.0, 1.2 * busy), "preemptions": 12 if over else 0,
        "gpus": 4, "servers": 1, "gpu_power_w_mean": 800 * busy + 200, "it_power_w_mean": 800 * busy + 500,
        "facility_power_w_mean": 1200 * busy + 750, "energy_kwh": hours * (1.2 * busy + 0.75), "capex_usd": None,
        "cost_usd": None, "window_h": hours, "output_tokens": output, "total_tokens": 3 * output,
        "good_output_tokens": output * attained, "low_sample_percentiles": ["ttft_s_p99"] if load < 1 else [],
        "step_share": {"compute": 0.1 + 0.3 * busy, "memory": 0.5 - 0.3 * busy, "attention": 0.1, "link": 0.3},
        "component_usd_per_h": None,
    }  # fmt: skip
    for name, middle in (("ttft_s", ttft), ("tpot_s", tpot), ("e2e_s", ttft + 255 * tpot)):
        lost = load > 2 * capacity and name != "tpot_s"
        metrics |= {f"{name}_mean": middle, f"{name}_p50": 0.6 * middle}
        metrics |= {f"{name}_p95": inf if lost else middle, f"{name}_p99": inf if lost else 1.6 * middle}
    if usd_per_h is not None:
        parts = {"gpu_capital": 0.6, "server_capital": 0.15, "hosting": 0.1, "energy": 0.15 * (0.5 + 0.5 * busy)}
        parts = {part: share * usd_per_h for part, share in parts.items()}
        metrics |= {"component_usd_per_h": parts, "cost_usd": hours * sum(parts.values())}
        metrics["capex_usd"] = 15000.0 * usd_per_h
    return MadeUpCase(fleet, {"rate_rps": load, **axes}, replication, measured=metrics)


FLEETS = {"4x RTX 4090": (2.3, 0.62), "2x A100 80GB": (4.6, 1.58)}
LOADS = (0.25, 0.5, 1.0, 2.0, 4.0)


@pytest.fixture
def make_case() -> Callable[..., MadeUpCase]:
    return made_up


@pytest.fixture(scope="module")
def two_fleets() -> list[MadeUpCase]:
    return [
        made_up(name, load, replication, capacity=capacity, usd_per_h=usd)
        for name, (capacity, usd) in FLEETS.items()
        for load in LOADS
        for replication in range(5)
    ]
