"""Calibration of a watched fleet to its own hours: stretches of its metrics, fitted as `gpufleet calibrate` does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import BenchRow
from sim.benchdata.served.metrics import seen_in
from sim.benchdata.served.scrapes import MetricsScrape, Series
from sim.catalogue.catalog import Catalog
from sim.catalogue.engine import family_of
from sim.fidelity.calibration import NothingToFit, calibrate, calibration_text
from sim.scenario.resolving.bind import bind
from sim.scenario.schema import Scenario
from sim.steptime.options import Roofline
from sim.watch.observed import HOUR_S, STEP_S, HourObserved
from sim.watch.source import Points, Source

LEAST_HOURS = 24
"""Fewest compared hours before a calibration: a day, with its low and its high loads."""
SMALLEST_BIAS = 0.05
"""Median logarithm of observed over predicted below which no calibration is made."""
QUANTILES = (0.15, 0.6, 0.95)
"""Quantiles of the hourly rates at which stretches are chosen: different loads determine different factors."""
LONGEST_STRETCH_S = 1800
TRIES = 3
"""Hours near a quantile that are tried before it is left out."""


class CannotCalibrate(Exception):
    """Error for a fleet or hours that no factors can be fitted to; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Recalibration:
    """Text of a calibration file, with the number of runs that it rests on."""

    text: str
    runs: int


def is_biased(ratios: Sequence[float]) -> bool:
    """Return whether LEAST_HOURS ratios of observed to predicted values are off by SMALLEST_BIAS or more."""
    return len(ratios) >= LEAST_HOURS and abs(median(ratios) - 1) >= SMALLEST_BIAS


def recalibrated(
    scenario: Scenario, catalog: Catalog, source: Source, hours: Sequence[HourObserved], workers: int
) -> Recalibration:
    """Return factors fitted to stretches of *hours* at low and high load.

    Raises
    ------
    CannotCalibrate
        The fleet has several kinds of replicas or no GPU, or the hours have no stretch that can be read.
    SourceError
        The server cannot be queried.

    """
    about = _about(scenario, catalog)
    rows: list[BenchRow] = []
    reasons: list[str] = []
    for hour in _chosen(hours):
        try:
            rows += _rows(source, hour, about)
        except BenchdataError as error:
            reasons += [text for _, _, text in error.problems]
    if not rows:
        raise CannotCalibrate(reasons[0] if reasons else "no hour has enough requests")
    try:
        fitted = calibrate(rows, about["gpu"], catalog, workers, source.shown)
    except NothingToFit as error:
        raise CannotCalibrate(str(error).replace("\n", "; ")) from None
    return Recalibration(calibration_text(fitted.calibration), len(rows))


def _about(scenario: Scenario, catalog: Catalog) -> dict[str, str]:
    """Return the columns that metrics lack. Raises CannotCalibrate."""
    fleet = scenario.fleets[0]
    if len(fleet.pools) > 1:
        raise CannotCalibrate("the fleet has several pools: calibrate each by `gpufleet calibrate`")
    bound = bind(scenario, fleet, fleet.pools[0], catalog)
    if bound.gpu is None or bound.model is None or not isinstance(bound.steptime, Roofline) or bound.slicing:
        raise CannotCalibrate("its step times are not computed from a whole GPU and a model")
    layout, batching = bound.layout, bound.batching
    engine = next((one for one in (fleet.pools[0].engine, fleet.engine, scenario.engine) if one), bound.engine.id)
    family = family_of(engine)
    found = {
        "gpu": bound.gpu.id,
        "model": bound.model.id,
        "precision": bound.quantization.id if bound.quantization else "",
        "kv_dtype": bound.kv_cache_dtype,
        "engine": family,
        "engine_version": engine.removeprefix(family).lstrip("-"),
        "n_gpus": layout.gpus,
        "tp": layout.tensor_parallel_size,
        "pp": layout.pipeline_parallel_size,
        "dp": layout.data_parallel_size,
        "max_num_seqs": getattr(batching, "max_num_seqs", ""),
        "max_num_batched_tokens": getattr(batching, "max_num_batched_tokens", ""),
        "gpu_memory_utilization": getattr(batching, "gpu_memory_utilization", ""),
        "measured_at": scenario.measured_at,
    }
    return {name: str(value) for name, value in found.items() if value not in ("", None)}


def _chosen(hours: Sequence[HourObserved]) -> list[HourObserved]:
    """Return the hours at QUANTILES of the rates, without hours in which a server restarted."""
    able = sorted(
        (one for one in hours if one.usable and one.requests and not one.restarts), key=lambda one: one.rate_rps
    )
    places = dict.fromkeys(min(len(able) - 1, int(share * len(able))) for share in QUANTILES) if able else {}
    return [able[place] for place in places]


def _rows(source: Source, hour: HourObserved, about: Mapping[str, str]) -> list[BenchRow]:
    """Return the runs of the servers in the first part of *hour*. Raises BenchdataError and SourceError."""
    series = source.engine_series(hour.hour, hour.hour + LONGEST_STRETCH_S, STEP_S)
    scrapes = scrapes_of(series, source.shown)
    return (
        [
            row
            for served in seen_in(scrapes, None, f"hour-{hour.hour // HOUR_S}")
            for row in served.rows(Path(source.shown), about)
        ]
        if scrapes
        else []
    )


def scrapes_of(series: Mapping[Series, Points], place: str) -> list[MetricsScrape]:
    """Return a scrape for each time at which all *series* have a sample; series that begin later are left out."""
    times = sorted({at_s for points in series.values() for at_s in points})
    whole = {one: points for one, points in series.items() if len(points) == len(times)}
    return [MetricsScrape(place, at_s, {one: points[at_s] for one, points in whole.items()}) for at_s in times]
