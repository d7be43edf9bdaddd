"""From the file of a claim to the claim; and the files that came with the program."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from sim.catalogue.catalog import Catalog
from sim.jobs.load import load_job
from sim.scenario.claim import CatalogueFigure, Claim, FormulaFigure, WeightsFigure, claim_issues, fleet_issues
from sim.scenario.experiment import Name
from sim.scenario.reading.errors import InputError, ScenarioErrors, ValidationIssue, did_you_mean, validation_issues
from sim.scenario.reading.layers import Layers, read_layers
from sim.scenario.reading.load import load_for_size, opening_comment
from sim.scenario.reading.shipped import shipped_folder
from sim.spec import Spec


class CatalogueClaim(Spec):
    """A file without fleets: a claim that the catalogue and arithmetic decide."""

    name: Name
    claim: Claim


WITHOUT_FLEETS = (CatalogueFigure, FormulaFigure, WeightsFigure)
"""Kinds of figures that are no fleet's."""


def claim_files(folder: Path | None = None) -> dict[str, Path]:
    """Id -> file of every claim in *folder*, by default the shipped ones: c08-two-a100.yaml holds C08."""
    found = sorted((folder or shipped_folder() / "claims").glob("c[0-9]*-*.yaml"))
    return {path.name.partition("-")[0].upper(): path for path in found}


def chosen(ids: Iterable[str], files: dict[str, Path]) -> dict[str, Path]:
    """Those of *files* that *ids* name, all if it names none. Raises ScenarioErrors for names that are not there."""
    typed = {one: one.strip().upper() for one in ids}
    wrong = [
        InputError("", 0, "", f"there is no claim {one!r}{did_you_mean(one, files)}")
        for one, name in typed.items()
        if name not in files
    ]
    if wrong:
        raise ScenarioErrors(wrong)
    return {name: files[name] for name in sorted(set(typed.values())) or files}


def sections(path: Path) -> set[str]:
    """Return which of the sections claim, workload and job the file *path* has. Raises ScenarioErrors."""
    return {"claim", "workload", "job", "jobs"} & read_layers(path, []).data.keys()


def read_claim(path: Path, catalog: Catalog) -> tuple[Claim, str]:
    """The claim in *path*, and the question that opens the file. Raises ScenarioErrors with all mistakes."""
    layers = read_layers(path, [])
    question = opening_comment(path)
    layers.data.setdefault("name", path.stem)
    if "workload" in layers.data:
        found = load_for_size(path, catalog=catalog).claim
        if found is None:
            raise ScenarioErrors([layers.error(ValidationIssue(("claim",), "is missing"))])
        return found, question
    if "job" in layers.data:
        return _of_job(path, layers, catalog), question
    try:
        stated = CatalogueClaim.model_validate(layers.data)
    except ValidationError as error:
        wrong = validation_issues(error, CatalogueClaim, layers.data)
        raise ScenarioErrors(map(layers.error, wrong)) from None
    wrong = [*claim_issues(stated.claim), *_of_fleets(stated.claim)]
    if wrong:
        raise ScenarioErrors(map(layers.error, wrong))
    return stated.claim, question


def _of_job(path: Path, layers: Layers, catalog: Catalog) -> Claim:
    scenario = load_job(path, catalog=catalog)
    found = scenario.claim
    if found is None:
        raise ScenarioErrors([layers.error(ValidationIssue(("claim",), "is missing"))])
    if wrong := [*claim_issues(found), *fleet_issues(found, scenario.fleets)]:
        raise ScenarioErrors(map(layers.error, wrong))
    return found


def _of_fleets(claim: Claim) -> Iterable[ValidationIssue]:
    """Figures that need the fleets that this file lacks."""
    for name, spec in claim.figures.items():
        if not isinstance(spec, WITHOUT_FLEETS):
            yield ValidationIssue(
                ("claim", "figures", name), f"{spec.kind}: needs a scenario, with a workload and fleets"
            )
