"""Parameters in the query of a request, refused where they are missing or too many."""

from typing import Any

from starlette.requests import Request

from sim.message import Message
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.serve.refusals import RefusedRequest
from sim.yamlio import YamlError, parse

MOST_VALUES = 60
"""Largest number of overrides in an address."""


def required_parameter(request: Request, name: str) -> str:
    """Return the value of *name* in the address. Raises RefusedRequest unless it is given once."""
    given = request.query_params.getlist(name)
    if len(given) != 1 or not given[0]:
        raise RefusedRequest(400, Message("the address needs {name}=..., once", name))
    return given[0]


def values_of(request: Request) -> dict[str, Any]:
    """Return the overrides in the address (`set=site.pue=1.2`, repeatable). Raises RefusedRequest, ScenarioErrors."""
    given = request.query_params.getlist("set")
    if len(given) > MOST_VALUES:
        raise RefusedRequest(400, Message("at most {limit} values can be set at once", MOST_VALUES))
    found: dict[str, Any] = {}
    for item in given:
        path, equals, text = item.partition("=")
        if not equals or not path.strip():
            raise ScenarioErrors([InputError(f"set={item[:60]}", 0, "", "path=value is needed")])
        try:
            found[path.strip()] = parse(text)
        except YamlError as error:
            raise ScenarioErrors([InputError(f"--set {path}", 0, "", error.message)]) from None
    return found
