"""One claim checked: every figure found, every part judged, the reason in words."""

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.scenario.claims.claim import Claim
from sim.scenario.claims.figures import (
    Arithmetic,
    Capacity,
    Catalogued,
    Cheapest,
    FigureSpec,
    LedgerLine,
    Memory,
    Run,
    Weights,
)
from sim.scenario.claims.reading import read_claim
from sim.scenario.reading.errors import Complaint, ScenarioErrors, did_you_mean
from sim.scenario.reading.layers import read_layers
from sim.study.cases.cores import Cores
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure
from sim.study.claims.formulas import formula_wrong
from sim.study.claims.kinds import find
from sim.study.claims.rules import Judged, Verdict, judge, verdict
from sim.study.fleets.capacity.search import why_no_capacity
from sim.study.fleets.size.prospects import why_no_size
from sim.study.metrics.columns import BY_NAME, is_column

EFFORT = {Run: 1, LedgerLine: 1, Capacity: 8, Cheapest: 20}
"""About how many simulations a figure takes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A claim with its verdict."""

    id: str
    scenario: str
    """Name of the file, without its ending."""
    digest: str
    """Of the file's content."""
    question: str
    """The comment that opens the file."""
    claim: Claim
    figures: dict[str, Figure]
    verdict: Verdict
    parts: tuple[Judged, ...]


def answer(id: str, path: Path, catalog: Catalog) -> Answer:
    """Checks the claim in the file *path*. Raises ScenarioErrors for mistakes in it."""
    claim, question = read_claim(path, catalog)
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder, Cores(1) as cores:
        asked = Asked(path, catalog, Path(folder), cores)
        for name in claim.order():
            try:
                asked.figures[name] = find(claim.figures[name], asked)
            except (NoFigure, ValueError) as error:
                if isinstance(error, ScenarioErrors):
                    raise
                complaint = Complaint(("claim", "figures", name), str(error))
                raise ScenarioErrors([read_layers(path, []).error(complaint)]) from None
    figures = asked.figures
    parts = tuple(judge(part, figures) for part in claim.parts)
    return Answer(
        id,
        path.stem,
        digest_of(path),
        question,
        claim,
        figures,
        verdict(parts),
        parts,
    )


def check(path: Path, catalog: Catalog) -> Claim:
    """Return the claim in the file *path* after a look at all its figures that simulates nothing.

    Raises ScenarioErrors with every mistake: names that the catalogue, the formulas or summary.csv do not have, and
    values of a figure that its scenario does not take.
    """
    claim, _ = read_claim(path, catalog)
    wrong: list[Complaint] = []
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder, Cores(1) as cores:
        asked = Asked(path, catalog, Path(folder), cores)
        for name in claim.figures:
            place = ("claim", "figures", name)
            try:
                _try(claim.figures[name], asked)
            except ScenarioErrors as error:
                wrong += [Complaint((*place, "set"), f"{one.where}: {one.message}") for one in error.errors]
            except (NoFigure, ValueError) as error:
                wrong.append(Complaint(place, str(error)))
    if wrong:
        layers = read_layers(path, [])
        raise ScenarioErrors(layers.error(one) for one in wrong)
    return claim


def _try(spec: FigureSpec, asked: Asked) -> None:
    """Raise what keeps the figure from being found, as far as no simulation is needed to know it."""
    if isinstance(spec, Arithmetic):
        if told := formula_wrong(spec):
            raise NoFigure(told)
    elif isinstance(spec, Catalogued | Weights | Memory):
        find(spec, asked)
    elif isinstance(spec, Cheapest):
        if told := why_no_size(asked.scenario(spec.set, with_fleets=False)):
            raise NoFigure(told)
    elif asked.has_job:
        find(spec, asked)  # computed without a simulation
    elif isinstance(spec, Capacity):
        if told := why_no_capacity(asked.scenario(spec.set)):
            raise NoFigure(told)
    else:
        asked.cases(spec.fleet, spec.set)
        if isinstance(spec, Run) and not is_column(spec.metric):
            raise NoFigure(f"summary.csv has no column {spec.metric!r}{did_you_mean(spec.metric, BY_NAME)}")


def digest_of(path: Path) -> str:
    """Of the file's content: whether a page was written from this file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def effort(path: Path, catalog: Catalog) -> float:
    """About how many simulations the claim in *path* takes: the largest is started first."""
    claim, _ = read_claim(path, catalog)
    return sum(EFFORT.get(type(spec), 0) for spec in claim.figures.values())
