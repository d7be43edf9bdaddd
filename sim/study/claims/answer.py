"""One claim checked: every figure found, every part judged, the reason in words."""

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.scenario.claims.claim import Claim
from sim.scenario.claims.figures import Capacity, Cheapest, LedgerLine, Run
from sim.scenario.claims.reading import read_claim
from sim.scenario.reading.errors import Complaint, ScenarioErrors
from sim.scenario.reading.layers import read_layers
from sim.study.cases.cores import Cores
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure
from sim.study.claims.kinds import find
from sim.study.claims.rules import Judged, Verdict, judge, verdict

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


def digest_of(path: Path) -> str:
    """Of the file's content: whether a page was written from this file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def effort(path: Path, catalog: Catalog) -> float:
    """About how many simulations the claim in *path* takes: the largest is started first."""
    claim, _ = read_claim(path, catalog)
    return sum(EFFORT.get(type(spec), 0) for spec in claim.figures.values())
