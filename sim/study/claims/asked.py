"""A claim under examination: its file with some values replaced, a place to simulate in, figures found so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.scenario.job.load import has_job
from sim.scenario.reading.given import options
from sim.scenario.reading.load import load, load_for_size
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, cases
from sim.study.cases.cores import Cores
from sim.study.claims.figure import Figure, NoFigure


@dataclass(slots=True)
class Asked:
    """One claim's file and what its figures share."""

    path: Path
    catalog: Catalog
    out: Path
    """Simulated cases are kept below; figures of the same simulation share it."""
    cores: Cores
    figures: dict[str, Figure] = field(default_factory=dict)
    """Those that are known already."""
    answers: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Searches that several figures ask about."""

    def scenario(self, values: Mapping[str, Any], with_fleets: bool = True) -> Scenario:
        """The scenario with *values* in place of its own. Raises ScenarioErrors."""
        key = ("scenario", repr(values), with_fleets)
        if key not in self.answers:
            read = load if with_fleets else load_for_size
            self.answers[key] = read(self.path, options(values), catalog=self.catalog)
        found: Scenario = self.answers[key]
        return found

    @property
    def has_job(self) -> bool:
        """Whether the claim is about a training job."""
        if ("has_job",) not in self.answers:
            self.answers["has_job",] = has_job(self.path)
        return bool(self.answers["has_job",])

    def cases(self, fleet: str, values: Mapping[str, Any]) -> tuple[Scenario, list[Case]]:
        """The scenario with *values*, and the cases of *fleet*: one point, all replications. Raises NoFigure."""
        scenario = self.scenario(values)
        found = [case for case in cases(scenario) if case.fleet == fleet]
        points = list({repr(case.overrides): case.axes for case in found}.values())
        if len(points) > 1:
            raise NoFigure(f"{fleet}: {len(points)} points of the sweep; set {', '.join(points[0])}")
        return scenario, found
