"""A server that fills, queues or drains, simulated as its pages of metrics counted it."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median

import numpy as np
import pytest

from sim.benchdata.row import BenchRow, CountedTraffic
from sim.benchdata.served.lengths import TokenProgress, remaining_answers
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fidelity.calibration import calibrate
from sim.fidelity.fit import adjusted, calibration_of
from sim.fidelity.prediction import predict, prepared
from sim.fleet.fleet import RunningFleet
from sim.records import Request
from sim.scenario.resolving.resolved import CasePlan
from sim.steptime.calibration import Factor

GPU, ENGINE = "rtx-4090", "engines.vllm-0.14"
SLOW = {
    "memory_efficiency": 0.9,
    **{f"{ENGINE}.{name}": 2.0 for name in ("step_overhead", "sequence_overhead", "request_overhead")},
}
ROW = BenchRow(
    2, "fills", "RTX 4090", "llama3.1-8b", engine="vLLM", engine_version="0.14.0", load="poisson", rate_req_s=10.0,
    isl=512, osl=96, prompt_cv=0.5, output_cv=0.4, num_requests=240, max_num_seqs=48, measured_at="engine",
)  # fmt: skip
"""Poisson arrivals at an empty server, until it queues."""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def between(plan: CasePlan, since_s: int, until_s: int) -> BenchRow:
    """Return the traffic that pages recorded every second show for that time."""
    log = RunningFleet(replace(plan, warmup_s=float(since_s), horizon_s=float(until_s), drain_limit_s=0.0)).run()
    first = [one for one in log.requests if since_s < one.first_token_s <= until_s]
    begun_s, ended_s = times(log.requests, "first_token_s"), times(log.requests, "finished_s")
    answering_s = np.fmin(until_s, ended_s) - np.maximum(since_s, begun_s)
    gap_s = float(np.nansum(np.maximum(0.0, answering_s))) / (log.meters[0].output_tokens - len(first))
    pages = np.arange(since_s, until_s + 1.0)
    came, begun, ended = (
        np.array([(times(log.requests, name) <= at).sum() for at in pages], np.float64)
        for name in ("arrived_s", "first_token_s", "finished_s")
    )
    running = (begun - ended)[[0, -1]].tolist()
    pace = TokenProgress((pages - since_s) / gap_s, begun - begun[0], ended - ended[0], tuple(running))
    counts = tuple(zip((pages[1:] - since_s).tolist(), (came[1:] - came[0]).tolist(), strict=True))
    left = tuple(remaining_answers(96, 0.4, pace).tolist()) if since_s else ()
    measured = {"tpot_mean_ms": 1e3 * gap_s}
    if came[0] == begun[0]:
        measured["ttft_mean_ms"] = 1e3 * fmean(one.first_token_s - one.arrived_s for one in first)
    prompt = fmean(one.prompt_tokens for one in first)
    return replace(
        ROW, isl=prompt, counted=CountedTraffic(left, came[0] - begun[0], counts, 96.0, gap_s), measured=measured
    )


def times(requests: Sequence[Request], name: str) -> np.ndarray:
    return np.array([getattr(one, name) for one in requests], np.float64)


@pytest.mark.slow
@pytest.mark.parametrize(("since_s", "until_s"), [(0, 12), (3, 15), (12, 24), (18, 26)])
def test_what_was_counted_measures_what_was_measured(catalog: Catalog, since_s: int, until_s: int) -> None:
    """The counted traffic predicts the measurements while the server fills, queues and drains."""
    with prepared(ROW, catalog) as ready:
        row = between(ready.plan, since_s, until_s)
    found = predict(row, catalog).metrics
    assert found["tpot_mean_ms"] == pytest.approx(row.measured["tpot_mean_ms"], rel=0.05)


@pytest.mark.slow
def test_factors_of_the_first_half_improve_predictions_of_the_second(catalog: Catalog) -> None:
    truth = calibration_of(GPU, {name: Factor(factor=factor) for name, factor in SLOW.items()})
    with prepared(ROW, catalog) as ready:
        there = adjusted(truth)(ready.plan)
        whole = RunningFleet(there).run().requests
        page_s = int(median(one.finished_s for one in whole))
        fitted = calibrate([between(there, 0, page_s)], GPU, catalog, 1).calibration
        late = [one.index for one in whole if one.finished_s > page_s]
        errors = []
        for plan in (ready.plan, adjusted(fitted)(ready.plan)):
            logs = RunningFleet(plan).run().requests, whole
            tpots, ttfts = zip(*(later_means(log, late) for log in logs), strict=True)
            errors.append((abs(tpots[0] / tpots[1] - 1), abs(ttfts[0] / ttfts[1] - 1)))
    (tpot_before, ttft_before), (tpot, ttft) = errors
    assert tpot < 0.05 < tpot_before
    assert ttft < 0.12 < ttft_before


def later_means(requests: Sequence[Request], numbers: Sequence[int]) -> tuple[float, float]:
    """Mean time per token and to the first token of these requests [s]."""
    chosen = [requests[number] for number in numbers]
    tpot_s = fmean((one.finished_s - one.first_token_s) / max(1, one.output_tokens - 1) for one in chosen)
    return tpot_s, fmean(one.first_token_s - one.arrived_s for one in chosen)
