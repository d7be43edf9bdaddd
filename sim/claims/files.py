"""Reading of claim files, including those shipped with gpufleet."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from sim.catalogue.catalog import Catalog
from sim.jobs.load import load_job
from sim.message import Message
from sim.scenario.claim import CatalogueFigure, Claim, FormulaFigure, WeightsFigure, claim_issues, fleet_issues
from sim.scenario.experiment import Name
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import Layers, read_layers
from sim.scenario.reading.load import load_for_size, opening_comment
from sim.scenario.reading.shipped import shipped_folder
from sim.spec import Spec
from sim.validation import ValidationIssue, did_you_mean, validation_issues


class CatalogueClaim(Spec):
    """File without fleets: a claim that only needs the catalogue and arithmetic."""

    name: Name
    claim: Claim


WITHOUT_FLEETS = (CatalogueFigure, FormulaFigure, WeightsFigure)
"""Kinds of figures that need no fleet."""


def claim_files(folder: Path | None = None) -> dict[str, Path]:
    """Return the file of every claim in *folder* (default: shipped), keyed by id: c08-two-a100.yaml holds C08."""
    found = sorted((folder or shipped_folder() / "claims").glob("c[0-9]*-*.yaml"))
    return {path.name.partition("-")[0].upper(): path for path in found}


def chosen(ids: Iterable[str], files: dict[str, Path]) -> dict[str, Path]:
    """Return the *files* of the claims *ids*, or all without ids. Raises ScenarioErrors for unknown ids."""
    typed = {one: one.strip().upper() for one in ids}
    wrong = [
        InputError("", 0, "", Message("there is no claim {name!r}{hint}", one, did_you_mean(one, files)))
        for one, name in typed.items()
        if name not in files
    ]
    if wrong:
        raise ScenarioErrors(wrong)
    return {name: files[name] for name in sorted(set(typed.values())) or files}


def read_claim(path: Path, catalog: Catalog) -> tuple[Claim, str]:
    """Return the claim in *path* and the question at the top of the file. Raises ScenarioErrors with all mistakes."""
    layers = read_layers(path, [])
    question = opening_comment(path)
    layers.data.setdefault("name", path.stem)
    if "workload" in layers.data:
        found = load_for_size(path, catalog=catalog).claim
        if found is None:
            raise ScenarioErrors([layers.error(ValidationIssue(("claim",), "is missing"))])
        return found, question
    if "job" in layers.data:
        return _claim_of_job(path, layers, catalog), question
    try:
        stated = CatalogueClaim.model_validate(layers.data)
    except ValidationError as error:
        wrong = validation_issues(error, CatalogueClaim, layers.data)
        raise ScenarioErrors(map(layers.error, wrong)) from None
    wrong = [*claim_issues(stated.claim), *_fleet_figure_issues(stated.claim)]
    if wrong:
        raise ScenarioErrors(map(layers.error, wrong))
    return stated.claim, question


def _claim_of_job(path: Path, layers: Layers, catalog: Catalog) -> Claim:
    scenario = load_job(path, catalog=catalog)
    found = scenario.claim
    if found is None:
        raise ScenarioErrors([layers.error(ValidationIssue(("claim",), "is missing"))])
    if wrong := [*claim_issues(found), *fleet_issues(found, scenario.fleets)]:
        raise ScenarioErrors(map(layers.error, wrong))
    return found


def _fleet_figure_issues(claim: Claim) -> Iterable[ValidationIssue]:
    """Yield an issue for each figure that needs fleets."""
    for name, spec in claim.figures.items():
        if not isinstance(spec, WITHOUT_FLEETS):
            yield ValidationIssue(
                ("claim", "figures", name), Message("{kind}: needs a scenario, with a workload and fleets", spec.kind)
            )
