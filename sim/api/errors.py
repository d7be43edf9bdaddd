"""What goes wrong, as exceptions: the text is what the command line prints."""

from collections.abc import Iterable
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.catalogue.catalog import CatalogError, UnknownId
from sim.deliver.folder import FolderBusy, FolderRefused
from sim.scenario.reading.errors import ScenarioErrors
from sim.study.cases.execute import WorkerLost
from sim.yamlio import YamlError


class Infeasible(ValueError):
    """No fleet of the scenario can run; one line a reason. `result` is the result all the same, with status and reason
    of every fleet in its table.
    """

    def __init__(self, reasons: Iterable[str], result: Any) -> None:
        self.result = result
        super().__init__("\n".join(reasons))


__all__ = [
    "BenchdataError",
    "CatalogError",
    "FolderBusy",
    "FolderRefused",
    "Infeasible",
    "ScenarioErrors",
    "UnknownId",
    "WorkerLost",
    "YamlError",
]
