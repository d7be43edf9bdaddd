"""Verdicts on claims, computed one by one or in parallel on the local cores.

A part of a claim holds if its figure meets its rule, under all of its conditions. It depends if it holds under some
conditions only, or if the 95 % interval of the figure contains the limit. Verdicts of a claim:

- arithmetic error: a part that is the article's own arithmetic fails;
- holds, fails: all parts hold, or all fail;
- holds in part: some parts hold and some fail;
- depends: all other cases.
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
from sim.message import Message, placed
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
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.layers import read_layers
from sim.study.capacity import why_no_capacity
from sim.study.execution.cores import ProcessPool
from sim.study.metrics.columns import BY_NAME, is_column
from sim.study.size.bounds import why_no_size
from sim.validation import ValidationIssue, did_you_mean

Status = Literal["holds", "fails", "depends"]
Verdict = Literal["holds", "holds in part", "fails", "depends", "arithmetic error"]
VERDICTS: tuple[Verdict, ...] = ("holds", "holds in part", "depends", "fails", "arithmetic error")


@dataclass(frozen=True, slots=True)
class ConditionedPart:
    """Part of a claim under one condition."""

    condition: str
    """Condition; empty if the part has none."""
    figure: ClaimFigure
    status: Status


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """Part of a claim with its figures under all conditions."""

    part: ClaimPart
    findings: tuple[ConditionedPart, ...]

    @property
    def status(self) -> Status:
        """Status over all conditions."""
        return combined_status(one.status for one in self.findings)


def combined_status(statuses: Iterable[Status]) -> Status:
    """Return the status that all *statuses* share, else `depends`."""
    found = set(statuses)
    return found.pop() if len(found) == 1 else "depends"


def judge(part: ClaimPart, figures: dict[str, ClaimFigure]) -> JudgedPart:
    """Compare the *figures* of *part* with its rule."""
    findings = (
        ConditionedPart(condition, figures[name], _status(part, figures[name]))
        for condition, name in part.named.items()
    )
    return JudgedPart(part, tuple(findings))


def _status(part: ClaimPart, figure: ClaimFigure) -> Status:
    met = [_meets(part.holds, value, part.claimed) for value in (figure.value, *figure.ends)]
    return "holds" if all(met) else "depends" if any(met) else "fails"


def _meets(rule: ClaimRule, value: float, claimed: float | None) -> bool:
    if rule.within is not None:
        assert claimed  # `ClaimPart` requires a claimed number beside `within`
        return abs(value / claimed - 1) <= rule.within
    if rule.between is not None:
        return rule.between[0] <= value <= rule.between[1]
    if rule.at_least is not None:
        return value >= rule.at_least
    assert rule.at_most is not None  # each rule has exactly one key
    return value <= rule.at_most


def verdict(parts: Sequence[JudgedPart]) -> Verdict:
    """Return the verdict on a claim with the given *parts*."""
    statuses = {one.status for one in parts}
    if any(one.part.own_arithmetic and one.status == "fails" for one in parts):
        return "arithmetic error"
    if len(statuses) == 1:
        return statuses.pop()
    return "holds in part" if {"holds", "fails"} <= statuses else "depends"


EFFORT = {SummaryFigure: 1, LedgerFigure: 1, CapacityFigure: 8, CheapestFigure: 20}
"""Approximate number of simulations per kind of figure."""


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """Claim with its figures and verdict."""

    id: str
    scenario: str
    """Name of the file without suffix."""
    digest: str
    """Digest of the file's content."""
    question: str
    """Comment at the top of the file."""
    claim: Claim
    figures: dict[str, ClaimFigure]
    verdict: Verdict
    parts: tuple[JudgedPart, ...]


def answer(id: str, path: Path, catalog: Catalog) -> ClaimVerdict:
    """Check the claim in the file *path*. Raises ScenarioErrors for mistakes in the file."""
    claim, question = read_claim(path, catalog)
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder, ProcessPool(1) as cores:
        context = ClaimContext(path, catalog, Path(folder), cores)
        for name in claim.order():
            try:
                context.figures[name] = find(claim.figures[name], context)
            except (NoFigure, ValueError) as error:
                if isinstance(error, ScenarioErrors):
                    raise
                issue = ValidationIssue(("claim", "figures", name), str(error))
                raise ScenarioErrors([read_layers(path, []).error(issue)]) from None
    figures = context.figures
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
    """Check all figures of the claim in the file *path* without simulating. Return the claim.

    Raises
    ------
    ScenarioErrors
        Names are not in the catalogue, the formulas or summary.csv, or a figure's values do not fit its scenario.

    """
    claim, _ = read_claim(path, catalog)
    wrong: list[ValidationIssue] = []
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder, ProcessPool(1) as cores:
        context = ClaimContext(path, catalog, Path(folder), cores)
        for name in claim.figures:
            place = ("claim", "figures", name)
            try:
                _check_figure(claim.figures[name], context)
            except ScenarioErrors as error:
                wrong += [ValidationIssue((*place, "set"), placed(one.where, one.message)) for one in error.errors]
            except (NoFigure, ValueError) as error:
                wrong.append(ValidationIssue(place, str(error)))
    if wrong:
        layers = read_layers(path, [])
        raise ScenarioErrors(layers.error(one) for one in wrong)
    return claim


def _check_figure(spec: FigureSpec, context: ClaimContext) -> None:
    """Raise the error of a figure, as far as it is known without a simulation."""
    if isinstance(spec, FormulaFigure):
        if problem := formula_wrong(spec):
            raise NoFigure(problem)
    elif isinstance(spec, CatalogueFigure | WeightsFigure | MemoryFigure):
        find(spec, context)
    elif isinstance(spec, CheapestFigure):
        if problem := why_no_size(context.scenario(spec.set, with_fleets=False)):
            raise NoFigure(problem)
    elif context.has_job:
        find(spec, context)  # computed without a simulation
    elif isinstance(spec, CapacityFigure):
        if problem := why_no_capacity(context.scenario(spec.set)):
            raise NoFigure(problem)
    else:
        context.cases(spec.fleet, spec.set)
        if isinstance(spec, SummaryFigure) and not is_column(spec.metric):
            raise NoFigure(
                Message("summary.csv has no column {metric!r}{hint}", spec.metric, did_you_mean(spec.metric, BY_NAME))
            )


def digest_of(path: Path) -> str:
    """Return the digest of the file's content, which shows whether a page was written from this file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def effort(path: Path, catalog: Catalog) -> float:
    """Return the approximate number of simulations of the claim in *path*, by which claims are ordered."""
    claim, _ = read_claim(path, catalog)
    return sum(EFFORT.get(type(spec), 0) for spec in claim.figures.values())


Progress = Callable[[int, int, int], None]


def check_claims(files: Mapping[str, Path], catalog: Catalog, workers: int, progress: Progress) -> list[ClaimVerdict]:
    """Check every claim in *files* (id -> path). Return the verdicts in that order, independent of *workers*.

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
    """Return the catalogue under *root*, cached per process."""
    return load_catalog(root)
