"""From figures to verdicts: claims checked, one by itself or many side by side on the local cores.

A part holds where its figure keeps to its rule; computed under several conditions, where it does so under all of
them. It depends where it holds under some conditions and not under others, or where the 95 % interval of the figure
holds the limit. Of a claim

- one part that is the article's own arithmetic and fails makes it an arithmetic error;
- all parts hold: it holds; all parts fail: it fails;
- some hold and some fail: it holds in part;
- else, some part depends: it depends.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from joblib import Parallel, delayed

from sim.catalogue.catalog import Catalog, load_catalog
from sim.claims.figures import ClaimContext, ClaimFigure, NoFigure, find
from sim.claims.files import read_claim
from sim.claims.formulas import formula_wrong
from sim.scenario.claim import (
    CapacityFigure,
    CatalogueFigure,
    CheapestFigure,
    Claim,
    ClaimPart,
    ClaimRule,
    FigureSpec,
    FormulaFigure,
    LedgerFigure,
    MemoryFigure,
    SummaryFigure,
    WeightsFigure,
)
from sim.scenario.reading.errors import ScenarioErrors, ValidationIssue, did_you_mean
from sim.scenario.reading.layers import read_layers
from sim.study.capacity import why_no_capacity
from sim.study.execution.cores import ProcessPool
from sim.study.metrics.columns import BY_NAME, is_column
from sim.study.size.bounds import why_no_size

Status = Literal["holds", "fails", "depends"]
Verdict = Literal["holds", "holds in part", "fails", "depends", "arithmetic error"]
VERDICTS: tuple[Verdict, ...] = ("holds", "holds in part", "depends", "fails", "arithmetic error")


@dataclass(frozen=True, slots=True)
class ConditionedPart:
    """A part of a claim under one condition."""

    condition: str
    """Empty where the part has no conditions."""
    figure: ClaimFigure
    status: Status


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """A part of a claim with its figures."""

    part: ClaimPart
    findings: tuple[ConditionedPart, ...]

    @property
    def status(self) -> Status:
        """Over all conditions."""
        return together(one.status for one in self.findings)


def together(statuses: Iterable[Status]) -> Status:
    """Holds or fails where all do."""
    found = set(statuses)
    return found.pop() if len(found) == 1 else "depends"


def judge(part: ClaimPart, figures: dict[str, ClaimFigure]) -> JudgedPart:
    """*part* on the figures of the claim."""
    findings = (
        ConditionedPart(condition, figures[name], _status(part, figures[name]))
        for condition, name in part.named.items()
    )
    return JudgedPart(part, tuple(findings))


def _status(part: ClaimPart, figure: ClaimFigure) -> Status:
    kept = [_keeps(part.holds, value, part.claimed) for value in (figure.value, *figure.ends)]
    return "holds" if all(kept) else "depends" if any(kept) else "fails"


def _keeps(rule: ClaimRule, value: float, claimed: float | None) -> bool:
    if rule.within is not None:
        assert claimed  # the part's own check
        return abs(value / claimed - 1) <= rule.within
    if rule.between is not None:
        return rule.between[0] <= value <= rule.between[1]
    if rule.at_least is not None:
        return value >= rule.at_least
    assert rule.at_most is not None  # a rule has one key
    return value <= rule.at_most


def verdict(parts: Sequence[JudgedPart]) -> Verdict:
    """What *parts* come to."""
    statuses = {one.status for one in parts}
    if any(one.part.own_arithmetic and one.status == "fails" for one in parts):
        return "arithmetic error"
    if len(statuses) == 1:
        return statuses.pop()
    return "holds in part" if {"holds", "fails"} <= statuses else "depends"


EFFORT = {SummaryFigure: 1, LedgerFigure: 1, CapacityFigure: 8, CheapestFigure: 20}
"""About how many simulations a figure takes."""


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """A claim with its verdict."""

    id: str
    scenario: str
    """Name of the file, without its ending."""
    digest: str
    """Of the file's content."""
    question: str
    """The comment that opens the file."""
    claim: Claim
    figures: dict[str, ClaimFigure]
    verdict: Verdict
    parts: tuple[JudgedPart, ...]


def answer(id: str, path: Path, catalog: Catalog) -> ClaimVerdict:
    """Checks the claim in the file *path*. Raises ScenarioErrors for mistakes in it."""
    claim, question = read_claim(path, catalog)
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder, ProcessPool(1) as cores:
        asked = ClaimContext(path, catalog, Path(folder), cores)
        for name in claim.order():
            try:
                asked.figures[name] = find(claim.figures[name], asked)
            except (NoFigure, ValueError) as error:
                if isinstance(error, ScenarioErrors):
                    raise
                complaint = ValidationIssue(("claim", "figures", name), str(error))
                raise ScenarioErrors([read_layers(path, []).error(complaint)]) from None
    figures = asked.figures
    parts = tuple(judge(part, figures) for part in claim.parts)
    return ClaimVerdict(
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
    wrong: list[ValidationIssue] = []
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder, ProcessPool(1) as cores:
        asked = ClaimContext(path, catalog, Path(folder), cores)
        for name in claim.figures:
            place = ("claim", "figures", name)
            try:
                _try(claim.figures[name], asked)
            except ScenarioErrors as error:
                wrong += [ValidationIssue((*place, "set"), f"{one.where}: {one.message}") for one in error.errors]
            except (NoFigure, ValueError) as error:
                wrong.append(ValidationIssue(place, str(error)))
    if wrong:
        layers = read_layers(path, [])
        raise ScenarioErrors(layers.error(one) for one in wrong)
    return claim


def _try(spec: FigureSpec, asked: ClaimContext) -> None:
    """Raise what keeps the figure from being found, as far as no simulation is needed to know it."""
    if isinstance(spec, FormulaFigure):
        if told := formula_wrong(spec):
            raise NoFigure(told)
    elif isinstance(spec, CatalogueFigure | WeightsFigure | MemoryFigure):
        find(spec, asked)
    elif isinstance(spec, CheapestFigure):
        if told := why_no_size(asked.scenario(spec.set, with_fleets=False)):
            raise NoFigure(told)
    elif asked.has_job:
        find(spec, asked)  # computed without a simulation
    elif isinstance(spec, CapacityFigure):
        if told := why_no_capacity(asked.scenario(spec.set)):
            raise NoFigure(told)
    else:
        asked.cases(spec.fleet, spec.set)
        if isinstance(spec, SummaryFigure) and not is_column(spec.metric):
            raise NoFigure(f"summary.csv has no column {spec.metric!r}{did_you_mean(spec.metric, BY_NAME)}")


def digest_of(path: Path) -> str:
    """Of the file's content: whether a page was written from this file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def effort(path: Path, catalog: Catalog) -> float:
    """About how many simulations the claim in *path* takes: the largest is started first."""
    claim, _ = read_claim(path, catalog)
    return sum(EFFORT.get(type(spec), 0) for spec in claim.figures.values())


Told = Callable[[int, int, int], None]


def check_claims(files: Mapping[str, Path], catalog: Catalog, workers: int, progress: Told) -> list[ClaimVerdict]:
    """The answer to every claim in *files* (id -> path), in that order; the result does not depend on *workers*.

    *progress* is called with (done, all, 0). Raises ScenarioErrors with the mistakes of all files.
    """
    efforts, wrong = {}, []
    for name, path in files.items():
        try:
            efforts[name] = effort(path, catalog)
        except ScenarioErrors as error:
            wrong += error.errors
    if wrong:
        raise ScenarioErrors(wrong)
    longest_first = sorted(files, key=lambda name: -efforts[name])
    done: dict[str, ClaimVerdict] = {}
    for one in _answers({name: files[name] for name in longest_first}, catalog, workers):
        done[one.id] = one
        progress(len(done), len(files), 0)
    return [done[name] for name in files]


def _answers(files: Mapping[str, Path], catalog: Catalog, workers: int) -> Iterator[ClaimVerdict]:
    if workers == 1 or len(files) == 1:
        for name, path in files.items():
            yield answer(name, path, catalog)
        return
    parallel = Parallel(n_jobs=min(workers, len(files)), return_as="generator_unordered", batch_size=1)
    yield from parallel(delayed(_in_worker)(name, path, catalog.root) for name, path in files.items())


def _in_worker(name: str, path: Path, root: Path) -> ClaimVerdict:
    return answer(name, path, _catalog(root))


@cache
def _catalog(root: Path) -> Catalog:
    """One catalogue per process: it remembers what it has read."""
    return load_catalog(root)
