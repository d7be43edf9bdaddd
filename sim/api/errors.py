"""Exceptions of the Python API, whose messages are the command line's with Python arguments in place of options."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.answers.folder import FolderBusy, FolderRefused, FolderUnreachable
from sim.benchdata.errors import BenchdataError
from sim.catalogue.data_folder import CatalogError, UnknownId
from sim.message import joined
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.study.execution.cases import WorkerLost
from sim.yamlio import YamlError

WORDS = (
    ("--out with another folder keeps", "another folder as out= keeps"),
    ("--force replaces", "force=True replaces"),
    ("--out ", "out="),
)
"""Options of the command line -> arguments in Python, the longest first."""


@contextmanager
def in_python(temporary: Path | None = None) -> Iterator[None]:
    """Reword errors raised inside for Python: `set["site.pue"]` where the command line has `--set site.pue`.

    Files in the folder *temporary*, which the caller does not know, are not named.
    """
    try:
        yield
    except ScenarioErrors as error:
        raise ScenarioErrors(_of_arguments(one, temporary) for one in error.errors) from None
    except (FolderRefused, FolderBusy, FolderUnreachable) as error:
        raise type(error)(_with_argument_names(str(error))) from None


def _of_arguments(error: InputError, temporary: Path | None) -> InputError:
    option, _, path = error.path.partition(" ")
    if option == "--set":
        return replace(error, path=f'set["{path}"]', message=_with_argument_names(error.message))
    if option in ("--seed", "--replications"):
        return replace(error, path=option.removeprefix("--"), message=_with_argument_names(error.message))
    if temporary is not None and Path(error.path).is_relative_to(temporary):
        return replace(error, path="", line=0, message=_with_argument_names(error.message))
    return replace(error, message=_with_argument_names(error.message))


def _with_argument_names(text: str) -> str:
    for option, argument in WORDS:
        if option in text:
            text = text.replace(option, argument)
    return text


class Infeasible(ValueError):
    """Error for a scenario in which no fleet can run; its message has a line per reason.

    `result` holds the answer, whose table has the status and reason of every fleet.
    """

    def __init__(self, reasons: Iterable[str], result: Any) -> None:
        self.result = result
        super().__init__(joined("\n", reasons))

    def __reduce__(self) -> Any:
        return type(self), (str(self).splitlines(), self.result)


__all__ = [
    "BenchdataError",
    "CatalogError",
    "FolderBusy",
    "FolderRefused",
    "FolderUnreachable",
    "Infeasible",
    "ScenarioErrors",
    "UnknownId",
    "WorkerLost",
    "YamlError",
]
