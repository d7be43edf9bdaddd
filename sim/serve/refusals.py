"""Refused requests: errors as JSON responses."""

from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse

from sim.answers.folder import FolderBusy, FolderRefused
from sim.catalogue.data_folder import CatalogError, UnknownId
from sim.cost.prices import CostError
from sim.infile import OutsideFolders
from sim.language import translate_message
from sim.message import Message, joined
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.yamlio import YamlError

WRONG_INPUT = (ScenarioErrors, UnknownId, CatalogError, YamlError, CostError, FolderRefused, OSError)
"""Errors that the caller can correct: status 422."""


class RefusedRequest(Exception):
    """Error that refuses a request, with the status of the response and a sentence per problem."""

    def __init__(self, status: int, *texts: str) -> None:
        self.status, self.texts = status, texts
        super().__init__(joined("; ", texts))


async def refused(_: Request, error: Exception) -> JSONResponse:
    """Return the response to an error, `{"errors": [{"message": ..., "line": ..., "where": ...}]}`."""
    if isinstance(error, RefusedRequest):
        again = {"retry-after": "1"} if error.status == 503 else None
        return JSONResponse(
            {"errors": [{"message": translate_message(text)} for text in error.texts]}, error.status, again
        )
    if isinstance(error, FolderBusy):
        return JSONResponse({"errors": [{"message": translate_message(str(error))}]}, 409)
    return JSONResponse({"errors": error_data(error)}, 403 if isinstance(error, OutsideFolders) else 422)


async def broken(_: Request, error: Exception) -> JSONResponse:
    """Return the response to a fault of the server, whose terminal has the traceback."""
    text = Message("the server could not answer this ({name}); its terminal shows why", type(error).__name__)
    return JSONResponse({"errors": [{"message": translate_message(text)}]}, 500)


def error_data(error: Exception) -> list[dict[str, str | int]]:
    """Return every mistake in *error*, with its line and place."""
    if isinstance(error, ScenarioErrors):
        return [_as_data(one) for one in error.errors]
    if isinstance(error, YamlError):
        return [_as_data(InputError(error.path, error.line, "", error.message))]
    if isinstance(error, OSError):
        return [
            {
                "message": translate_message(
                    f"{Path(str(error.filename or '')).name}: {(error.strerror or 'gone').lower()}"
                )
            }
        ]
    return [{"message": translate_message(str(error))}]


def _as_data(error: InputError) -> dict[str, str | int]:
    return {"message": translate_message(error.message), "line": error.line, "where": error.where, "path": error.path}


def sentences(errors: Sequence[InputError]) -> list[str]:
    """Return *errors* as sentences without the name of the file, which the page shows."""
    return [": ".join(part for part in (one.where, translate_message(one.message)) if part) for one in errors]
