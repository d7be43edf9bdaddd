"""`sim.simulate`: the engine alone, from arrays of requests to their timestamps."""

from collections.abc import Mapping
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pydantic import PrivateAttr

from sim.api.errors import Infeasible
from sim.case.result import CaseResult
from sim.catalogue.catalog import load_catalog
from sim.fleet.fleet import RunningFleet
from sim.message import Message
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import as_document, plain
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.sweep import cases
from sim.spec import Spec
from sim.study.execution.store import requests_table
from sim.study.metrics.metric import MeasuredRun
from sim.workload import Streams, Workload
from sim.workload.requests import RequestTable
from sim.workload.traces.columns import LARGEST, LATEST_S

ARRIVALS = ("arrived_s", "arrival_s")
"""Names of the column of arrivals: as in requests.csv, or as in a trace."""
COLUMNS = ["pool", "replica", "arrived_s", "started_s", "first_token_s", "finished_s"]
COLUMNS += ["prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "status"]
TOKENS = ("prompt_tokens", "output_tokens")
ONE_UNIT = {"prompt_tokens": 0, "output_tokens": 1}
"""Token counts in requests.csv of a request to a one-pass service."""
NOT_SIMULATED = ("cost", "site", "finance", "operations", "api", "carbon")
"""Keys of a fleet or pool that concern costs only."""
ONE_READING_S = 2 * LATEST_S
"""Meter interval longer than any run [s], as no meter readings are used."""


class GivenWorkload(Workload):
    """Workload of requests supplied by a caller; its `arrivals` and `lengths` serve only the checks of a scenario."""

    _table: RequestTable = PrivateAttr()

    def open_table(self, streams: Streams, horizon_s: float | None) -> RequestTable:
        """Return all requests of the caller."""
        return self._table


def simulate(
    requests: Mapping[str, ArrayLike] | pd.DataFrame, fleet: Mapping[str, Any] | Spec, *, seed: int = 0
) -> pd.DataFrame:
    """Simulate a fleet with given requests until the last has finished, without scenario, files or costs.

    Parameters
    ----------
    requests
        Columns of equal length: `arrived_s` (or `arrival_s`, as in a trace) [s], `prompt_tokens`, `output_tokens` and
        optionally `priority` (lower first, with `scheduling: priority`), in any order; other columns are ignored.
        Requests of a one-pass service have no tokens.
    fleet
        Dict as under `fleets:` in a scenario, or the keys of a single pool; its costs are ignored.
    seed
        Seed of routers that draw at random.

    Returns
    -------
    pandas.DataFrame
        One row per request, in the order and with the index of *requests*: pool, replica, `arrived_s`, `started_s`,
        `first_token_s` and `finished_s` as a client sees them [s] (nan for what never happened), prompt, output and
        cached tokens, preemptions, and status (finished or rejected).

    Raises
    ------
    ScenarioErrors
        If *fleet* is invalid.
    TypeError
        If *requests* or *fleet* is of another type.
    ValueError
        If a column is missing or invalid.
    Infeasible
        If the model does not fit.

    Examples
    --------
    >>> import sim
    >>> step = {"model": "affine", "base_s": 0.01, "per_token_s": 0.001, "per_context_token_s": 0}
    >>> pool = {"steptime": step, "batching": {"policy": "vllm", "max_num_seqs": 4, "max_num_batched_tokens": 100,
    ...         "num_gpu_blocks": 100, "max_model_len": 1000}}
    >>> done = sim.simulate({"arrived_s": [0.0, 5.0], "prompt_tokens": [40, 10], "output_tokens": [1, 2]}, pool)
    >>> done.finished_s.round(3).tolist()
    [0.05, 5.031]

    """
    if not isinstance(requests, Mapping | pd.DataFrame):
        raise TypeError(
            Message("requests are columns: a dict of arrays or a DataFrame, not {name}", type(requests).__name__)
        )
    if not isinstance(fleet, Mapping | Spec):
        raise TypeError(
            Message("a fleet is a dict, as under `fleets:` in a scenario, not {name}", type(fleet).__name__)
        )
    frame = _frame(requests)
    table, order = _table(frame)
    plan = _plan(table, fleet, seed)
    if plan.infeasible:
        raise Infeasible([plan.infeasible], None)
    log = RunningFleet(plan).run()
    done: pd.DataFrame = requests_table(MeasuredRun(CaseResult(plan, log, None))).to_pandas()[COLUMNS]
    done.index = frame.index[order]
    return done.reindex(frame.index) if frame.index.is_unique else done.iloc[np.argsort(order)]


def _frame(requests: Mapping[str, ArrayLike] | pd.DataFrame) -> pd.DataFrame:
    """Return the columns as a frame; columns of a mapping are aligned by position, and their indices ignored."""
    columns = {name: np.asarray(column) for name, column in requests.items()}
    try:
        return pd.DataFrame(columns, index=requests.index if isinstance(requests, pd.DataFrame) else None)
    except ValueError:
        shapes = (f"{name} has {' x '.join(map(str, found.shape)) or 'one value'}" for name, found in columns.items())
        raise ValueError(Message("requests are columns of equal length, but {lengths}", ", ".join(shapes))) from None


def _table(frame: pd.DataFrame) -> tuple[RequestTable, NDArray[np.int64]]:
    """Return the requests in order of arrival, and that order; without token columns each is a unit of work."""
    arrivals = next((name for name in ARRIVALS if name in frame), ARRIVALS[0])
    arrived_s = _column(frame, arrivals, float)
    if (arrived_s < 0).any():
        raise ValueError(Message("{arrivals}: time begins at 0, not at {first:g}", arrivals, arrived_s.min()))
    if (arrived_s > LATEST_S).any():
        why = "counts from the start: take the first request's time from all of them"
        raise ValueError(f"{arrivals}: {why}, not {arrived_s.max():g}")
    order = np.argsort(arrived_s, kind="stable")
    if not any(name in frame for name in TOKENS):
        frame = frame.assign(**ONE_UNIT)
    prompts, outputs = (_column(frame, name, int)[order] for name in TOKENS)
    priority = _column(frame, "priority", int)[order] if "priority" in frame else None
    table = RequestTable(arrived_s[order], prompts, outputs, priority)
    for name, values in zip(TOKENS, (prompts, outputs), strict=True):
        if (values < 1).any() and not _has_units(table):
            raise ValueError(Message("{name}: every request has at least 1, not {lowest}", name, values.min()))
    return table, order


def _has_units(table: RequestTable) -> bool:
    """Return whether the requests are units of work for a one-pass service."""
    alike = (
        values == ONE_UNIT[name]
        for name, values in zip(TOKENS, (table.prompt_tokens, table.output_tokens), strict=True)
    )
    return bool(len(table.arrived_s)) and all(one.all() for one in alike)


def _column(frame: pd.DataFrame, name: str, kind: type) -> NDArray[Any]:
    if name not in frame:
        raise ValueError(
            Message("{name}: is missing; there are {columns}", name, ", ".join(map(str, frame.columns)) or "no columns")
        )
    if frame[name].dtype.kind in "mM":
        raise ValueError(Message("{name}: numbers are needed (seconds from the start), not dates", name))
    try:
        values = frame[name].to_numpy(np.float64) if frame[name].dtype.kind != "c" else np.array([nan])
    except (TypeError, ValueError):
        raise ValueError(Message("{name}: numbers are needed", name)) from None
    if not np.isfinite(values).all() or (kind is int and (values != np.floor(values)).any()):
        raise ValueError(Message("{name}: {kind} numbers are needed", name, "whole" if kind is int else "finite"))
    if (np.abs(values) > LARGEST).any():
        raise ValueError(Message("{name}: {value:g} is too large to be exact", name, values[np.abs(values).argmax()]))
    return values.astype(np.int64 if kind is int else np.float64)


def _plan(table: RequestTable, fleet: Mapping[str, Any] | Spec, seed: int) -> Any:
    """Return the resolved plan of *fleet* with the requests. Raises ScenarioErrors with places in *fleet*."""
    data, inside = _as_fleet(fleet)
    lengths = {"prompt": _fixed(table.prompt_tokens), "output": _fixed(table.output_tokens)}
    workload: dict[str, Any] = {"arrivals": {"process": "burst", "num_requests": 1}}
    workload |= {} if _has_units(table) else {"lengths": lengths}
    scenario = {"fleets": [{"name": "fleet"} | data], "workload": workload, "meter_interval_s": ONE_READING_S}
    catalog = load_catalog()
    try:
        loaded = load(as_document(scenario | {"seed": seed}), catalog=catalog)
    except ScenarioErrors as error:
        raise ScenarioErrors([_of_requests(one) or _placed_in_fleet(one, inside) for one in error.errors]) from None
    plan = resolve(loaded, cases(loaded)[0], catalog)
    brought = GivenWorkload.model_validate(workload)
    brought._table = table
    return replace(plan, workload=brought)


def _as_fleet(fleet: Mapping[str, Any] | Spec) -> tuple[dict[str, Any], str]:
    """Return *fleet* as part of a scenario, without its costs, and the path of its keys there."""
    data = plain(fleet)
    one_pool = "pools" not in data
    if one_pool:
        data = {"pools": [{key: value for key, value in data.items() if key != "routing"}]} | {
            key: value for key, value in data.items() if key == "routing"
        }
    if isinstance(data["pools"], list):
        data["pools"] = [_physical(pool) if isinstance(pool, dict) else pool for pool in data["pools"]]
    return _physical(data), "fleets.0.pools.0." if one_pool else "fleets.0."


def _physical(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in NOT_SIMULATED}


def _fixed(tokens: NDArray[np.int64]) -> dict[str, Any]:
    """Return a fixed length that represents *tokens* in checks."""
    return {"distribution": "fixed", "value": max(1, round(float(tokens.mean()))) if len(tokens) else 1}


def _of_requests(error: InputError) -> InputError | None:
    """Convert an *error* about the workload to one about the given columns; None if it is about the fleet."""
    if error.where == "workload.lengths":
        return replace(
            error, where=", ".join(TOKENS), message="a request of a service is one unit of work: leave them out"
        )
    if error.where == "workload":
        return replace(
            error,
            where=TOKENS[0],
            message="every request of a language model has at least 1, those of services have none",
        )
    return None


def _placed_in_fleet(error: InputError, prefix: str) -> InputError:
    """Return *error* with its place in the given fleet."""
    return replace(error, where=error.where.removeprefix(prefix).removeprefix("fleets.0."))
