"""A scenario that comes from Python: the same data as a file's, with the current directory as its folder."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from sim.scenario.reading.errors import InputError, Place, ScenarioErrors, dotted
from sim.spec import Spec
from sim.yamlio import Document, YamlError, dump, dump_line, read_text


def given(data: Mapping[str, Any] | Spec) -> Document:
    """*data* as `load` takes it: relative paths in it start at the current directory, errors name places, no lines.

    Raises ScenarioErrors where a value cannot stand in a scenario, TypeError for what is no mapping.
    """
    if not isinstance(data, Mapping | Spec):
        kind = type(data).__name__
        raise TypeError(f"a scenario is a path, the name of a shipped one, a dict or a Scenario, not {kind}")
    try:
        return Document("", read_text(dump(plain(data)), "").data, None)
    except YamlError as error:
        raise ScenarioErrors([InputError("", 0, "", error.message)]) from None


def options(values: Mapping[str, Any]) -> list[str]:
    """*values* by dotted path, as `load` takes them from the command line.

    >>> options({"workload.arrivals.rate_rps": 0.5, "engine": "vllm", "slo": {"ttft_s": 1}})
    ['workload.arrivals.rate_rps=0.5', 'engine=vllm', 'slo={ttft_s: 1}']
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"set is a dict of dotted paths to values, not {type(values).__name__}")
    return [f"{path}={dump_line(plain(value, (path,)))}" for path, value in values.items()]


def plain(value: Any, place: Place = ()) -> Any:
    """*value* in what a YAML file can say: mappings, lists, texts, numbers, true, false and null.

    Arrays, pandas' columns and tuples become lists, numpy's numbers Python's, paths and dates text. Raises
    ScenarioErrors.
    """
    if isinstance(value, Spec):
        return value.model_dump(mode="json", exclude_unset=True)
    if callable(as_list := getattr(value, "tolist", None)):  # of numpy and pandas
        return plain(as_list(), place)
    if isinstance(value, Mapping):
        return {key: plain(item, (*place, str(key))) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Sequence | range) and not isinstance(value, bytes | bytearray):
        return [plain(item, (*place, index)) for index, item in enumerate(value)]
    raise ScenarioErrors([InputError("", 0, dotted(place), f"{type(value).__name__} cannot stand in a scenario")])
