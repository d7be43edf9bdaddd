"""How far predictions of services are off: medians over pairs of accelerator and benchmark."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sim.benchdata.mlperf import SERVICE_METRICS
from sim.study.fidelity.validate.services.predict import ServiceOutcome


@dataclass(frozen=True, slots=True)
class ServiceScore:
    """One metric in one group of rows that have a prediction."""

    group: str
    metric: str
    rows: int
    pairs: int
    median_error: float
    """Median over pairs of the pair's median |error|."""
    p90_error: float
    bias: float
    """Median over pairs of the pair's median signed error."""


def service_scores(outcomes: Sequence[ServiceOutcome], group: Callable[[ServiceOutcome], str]) -> list[ServiceScore]:
    """Scores of all metrics in all groups, in the order of their names."""
    members: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        for metric in SERVICE_METRICS:
            error = outcome.error(metric)
            if error is not None:
                members[group(outcome), metric][outcome.pair].append(error)
    return [_score(*key, found) for key, found in sorted(members.items())]


def _score(group: str, metric: str, pairs: dict[tuple[str, str], list[float]]) -> ServiceScore:
    sizes = [float(np.median(np.abs(errors))) for errors in pairs.values()]
    return ServiceScore(
        group,
        metric,
        rows=sum(map(len, pairs.values())),
        pairs=len(pairs),
        median_error=float(np.median(sizes)),
        p90_error=float(np.percentile(sizes, 90)),
        bias=float(np.median([np.median(errors) for errors in pairs.values()])),
    )
