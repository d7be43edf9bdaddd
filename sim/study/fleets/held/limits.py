"""Finished cases under another service level: the requests stay as they were served, the limits are others."""

from dataclasses import dataclass, field, fields, replace

import pyarrow as pa

from sim.scenario.sections.slo import LATENCIES, Slo
from sim.study.cases.store import StoredCase
from sim.study.metrics.batches import mean_half_width, percentile_half_width, rate_intervals
from sim.study.metrics.case_metrics import CaseMetrics, Latencies, percents, service_level, thin_tail
from sim.study.metrics.cohort import Cohort, percentile

OF_GOOD = ("slo_attainment", "goodput_rps", "good_output_tokens_per_s")
"""Figures of the requests within the limits, whose intervals follow the limits."""


@dataclass(frozen=True, slots=True)
class Judged(StoredCase):
    """A stored case whose requests are compared with other limits than those it was simulated with."""

    slo: Slo = field(kw_only=True)

    @classmethod
    def of(cls, case: StoredCase, slo: Slo) -> "Judged":
        """*case* under *slo*."""
        return cls(**{one.name: getattr(case, one.name) for one in fields(case)}, slo=slo)

    def requests(self) -> pa.Table:
        """One row per request, `slo_met` under the limits of this case."""
        table = StoredCase.requests(self)
        good = Cohort.stored(table, (0.0, 0.0), open_end=True).good(self.slo)
        place = table.schema.get_field_index("slo_met")
        return table.set_column(place, "slo_met", pa.array(good.astype("int8"), pa.int8()))


def under(slo: Slo, metrics: CaseMetrics, cohort: Cohort) -> CaseMetrics:
    """*metrics* as a run with the service level *slo* would have them, where *cohort* are its requests."""
    kept = cohort.good(slo)
    good = kept & cohort.measured
    traffic, requests = metrics.traffic, metrics.traffic.requests
    intervals = metrics.samples.batch_ci95
    return replace(
        metrics,
        traffic=replace(
            traffic,
            goodput_rps=float(good.sum()) / (cohort.end_s - cohort.start_s) if cohort.end_s > cohort.start_s else 0.0,
            slo_attainment=float(good.sum()) / requests if requests else None,
        ),
        latencies=_with_named(slo, metrics.latencies, cohort),
        level=service_level(cohort, slo),
        samples=replace(
            metrics.samples,
            good_output_tokens=traffic.output_tokens * cohort.good_share_of_tokens(kept),
            batch_ci95=_intervals(slo, intervals, cohort) if intervals else intervals,
        ),
    )


def _with_named(slo: Slo, latencies: Latencies, cohort: Cohort) -> Latencies:
    """With the percentiles that *slo* names."""
    found = dict(latencies.by_column)
    thin = []
    for name in LATENCIES:
        chosen = getattr(cohort, name)[cohort.members(name)]
        for percent in percents(slo, name):
            column = f"{name}_p{percent:g}"
            if column not in found:
                found[column] = percentile(chosen, percent) if chosen.size else None
            thin += [column] if thin_tail(chosen.size, percent) else []
    return Latencies(thin, found)


def _intervals(slo: Slo, before: dict[str, float], cohort: Cohort) -> dict[str, float]:
    """Half-widths of 95 % intervals that the run alone gives."""
    good = cohort.good(slo)
    rates = rate_intervals(cohort, good)
    found = {name: rates.get(name) for name in OF_GOOD}
    found["slo_attainment"] = mean_half_width(good[cohort.measured].astype(float))
    for one in slo.percentiles:
        if one.column not in before:
            values = getattr(cohort, one.latency)[cohort.members(one.latency)]
            found[one.column] = percentile_half_width(values, one.percent)
    kept = {name: half for name, half in before.items() if name not in OF_GOOD}
    return kept | {name: half for name, half in found.items() if half is not None}
