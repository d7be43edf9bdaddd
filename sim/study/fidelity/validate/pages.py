"""A server simulated from one page of its metrics to another as it was, and counted as its metrics count."""

from dataclasses import replace

import numpy as np

from sim.benchdata.counted import Counted
from sim.fleet import RunningFleet
from sim.records import FleetLog
from sim.scenario.resolving.resolved import CasePlan
from sim.workload import Workload
from sim.workload.requests import RequestTable
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS
from sim.workload.streams import Streams

MS_PER_S = 1000.0


class AsCounted(Workload):
    """Requests of a workload's lengths at the moments at which they were counted."""

    pages: Counted

    @classmethod
    def of(cls, workload: Workload, pages: Counted) -> "AsCounted":
        """Of a workload that has been checked."""
        return cls.model_construct(**dict(workload), pages=pages)

    def open_table(self, streams: Streams, horizon_s: float | None) -> RequestTable:
        """All requests. In the first draw lengths are even quantiles in any order, so that few have the right mean."""
        assert self.lengths is not None
        arrived_s = self.pages.arrivals_s()
        generator, number = self.pages.generator(), len(arrived_s)
        chances = [
            generator.random(number) if self.pages.draw else generator.permutation((np.arange(number) + 0.5) / number)
            for _ in range(2)
        ]
        prompts, outputs = self.lengths.prompt.quantile(chances[0]), self.lengths.output.quantile(chances[1])
        running = self.pages.running_answers().astype(np.int64)
        outputs[: len(running)] = running
        hashes = self.block_hashes(streams, 0, prompts)
        return RequestTable(arrived_s, prompts, outputs, None, hashes, HASH_BLOCK_TOKENS)


def between_pages(plan: CasePlan, pages: Counted) -> dict[str, float]:
    """Mean time to first token of the requests, and between tokens, of those that fall between the pages.

    Those that run at the first page begin so long before it that they have made then what they are taken to have made.
    """
    if pages.remaining:
        made = sum(meters.output_tokens for meters in _run(plan, pages, 0.0, pages.begin_s).meters)
        wanted = len(pages.remaining) * pages.answer / 2
        pages = replace(pages, gap_s=pages.gap_s * wanted / max(1, made))
    log = _run(plan, pages, pages.begin_s, pages.end_s)
    arrived_s, first_s, last_s = (
        np.array([getattr(one, name) for one in log.requests], np.float64)
        for name in ("arrived_s", "first_token_s", "finished_s")
    )
    first = (pages.begin_s < first_s) & (first_s <= pages.end_s)
    answering_s = np.fmin(last_s, pages.end_s) - np.maximum(first_s, pages.begin_s)
    gaps = sum(meters.output_tokens for meters in log.meters) - int(first.sum())
    found = {"ttft_mean_ms": MS_PER_S * float((first_s - arrived_s)[first].mean())} if first.any() else {}
    if gaps > 0:
        found["tpot_mean_ms"] = MS_PER_S * float(np.maximum(0.0, np.nan_to_num(answering_s)).sum()) / gaps
    return found


def _run(plan: CasePlan, pages: Counted, since_s: float, until_s: float) -> FleetLog:
    workload = AsCounted.of(plan.workload, pages)
    return RunningFleet(replace(plan, workload=workload, warmup_s=since_s, horizon_s=until_s, drain_limit_s=0.0)).run()
