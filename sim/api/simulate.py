"""`sim.simulate`: the engine alone, from arrays of requests to their timestamps."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pydantic import PrivateAttr

from sim.api.errors import Infeasible
from sim.case import CaseResult
from sim.catalogue.catalog import load_catalog
from sim.fleet import RunningFleet
from sim.records import RequestTable
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.given import given, plain
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.sweep import cases
from sim.spec import Spec
from sim.study.cases.store import requests_table
from sim.workload import Streams, Workload

ARRIVALS = ("arrived_s", "arrival_s")
"""What the column of arrivals may be called: as in requests.csv, or as in a trace."""
COLUMNS = ["pool", "replica", "arrived_s", "started_s", "first_token_s", "finished_s"]
COLUMNS += ["prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "status"]
NOT_SIMULATED = ("cost", "site", "finance", "operations", "api", "carbon")
"""Keys of a fleet that say what it costs."""
ONE_READING_S = 1e9
"""Meters are not asked for."""


class GivenWorkload(Workload):
    """Requests that a caller has brought; arrivals and lengths stand for them where a workload is described."""

    _table: RequestTable = PrivateAttr()

    def open_table(self, streams: Streams, horizon_s: float | None) -> RequestTable:
        """All of them."""
        return self._table


def simulate(
    requests: Mapping[str, ArrayLike] | pd.DataFrame, fleet: Mapping[str, Any] | Spec, *, seed: int = 0
) -> pd.DataFrame:
    """Simulate a fleet with requests of your own, until the last one has finished: no scenario, no files, no costs.

    *requests* holds equally long columns: `arrived_s` (or `arrival_s`, as in a trace) [s], `prompt_tokens`,
    `output_tokens` and, if you like, `priority` (lower first, with `scheduling: priority`), in any order. *fleet* is a
    dict as under `fleets:` in a scenario, or the keys of a single pool; what it costs is ignored. *seed* is that of
    routers that draw at random.

    Returns one row per request, in the order and with the index of *requests*: pool, replica, `started_s`,
    `first_token_s`, `finished_s` (nan for what never happened) and status (finished or rejected). Latencies are as a
    client sees them. Raises ScenarioErrors for a wrong fleet, ValueError for wrong columns, Infeasible where the model
    does not fit.

    >>> import sim
    >>> step = {"model": "affine", "base_s": 0.01, "per_token_s": 0.001, "per_context_token_s": 0}
    >>> pool = {"steptime": step, "batching": {"policy": "vllm", "max_num_seqs": 4, "max_num_batched_tokens": 100,
    ...         "num_gpu_blocks": 100, "max_model_len": 1000}}
    >>> done = sim.simulate({"arrived_s": [0.0, 5.0], "prompt_tokens": [40, 10], "output_tokens": [1, 2]}, pool)
    >>> done.finished_s.round(3).tolist()
    [0.05, 5.031]
    """
    if not isinstance(requests, Mapping | pd.DataFrame):
        raise TypeError(f"requests are columns: a dict of arrays or a DataFrame, not {type(requests).__name__}")
    if not isinstance(fleet, Mapping | Spec):
        raise TypeError(f"a fleet is a dict, as under `fleets:` in a scenario, not {type(fleet).__name__}")
    frame = pd.DataFrame({name: np.asarray(column) for name, column in requests.items()})
    if isinstance(requests, pd.DataFrame):
        frame.index = requests.index
    table, order = _table(frame)
    plan = _plan(table, fleet, seed)
    if plan.infeasible:
        raise Infeasible([plan.infeasible], None)
    log = RunningFleet(plan).run()
    done: pd.DataFrame = requests_table(CaseResult(plan, log, None)).to_pandas()[COLUMNS]
    done.index = frame.index[order]
    return done.reindex(frame.index) if frame.index.is_unique else done.iloc[np.argsort(order)]


def _table(frame: pd.DataFrame) -> tuple[RequestTable, NDArray[np.int64]]:
    """The requests in order of arrival, and that order."""
    arrivals = next((name for name in ARRIVALS if name in frame), ARRIVALS[0])
    arrived_s = _column(frame, arrivals, float)
    order = np.argsort(arrived_s, kind="stable")
    prompts, outputs = (_column(frame, name, int)[order] for name in ("prompt_tokens", "output_tokens"))
    priority = _column(frame, "priority", int)[order] if "priority" in frame else None
    for name, values in (("prompt_tokens", prompts), ("output_tokens", outputs)):
        if (values < 1).any():
            raise ValueError(f"{name}: every request has at least 1, not {values.min()}")
    if (arrived_s < 0).any():
        raise ValueError(f"{arrivals}: time begins at 0, not at {arrived_s.min():g}")
    return RequestTable(arrived_s[order], prompts, outputs, priority), order


def _column(frame: pd.DataFrame, name: str, kind: type) -> NDArray[Any]:
    if name not in frame:
        raise ValueError(f"{name}: is missing; there are {', '.join(map(str, frame.columns)) or 'no columns'}")
    if frame[name].dtype.kind in "mM":
        raise ValueError(f"{name}: numbers are needed (seconds from the start), not dates")
    try:
        values = frame[name].to_numpy(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: numbers are needed") from None
    if not np.isfinite(values).all() or (kind is int and (values != np.floor(values)).any()):
        raise ValueError(f"{name}: {'whole' if kind is int else 'finite'} numbers are needed")
    return values.astype(np.int64 if kind is int else np.float64)


def _plan(table: RequestTable, fleet: Mapping[str, Any] | Spec, seed: int) -> Any:
    """The plan of the only case. Raises ScenarioErrors with places in *fleet*."""
    data = {key: value for key, value in plain(fleet).items() if key not in NOT_SIMULATED}
    one_pool = "pools" not in data
    if one_pool:
        data = {"pools": [{k: v for k, v in data.items() if k != "routing"}]} | {
            k: v for k, v in data.items() if k == "routing"
        }
    fixed = {"distribution": "fixed"}
    tokens = (table.prompt_tokens, table.output_tokens)
    prompt, output = (fixed | {"value": max(1, round(float(one.mean())) if len(one) else 1)} for one in tokens)
    workload = {"arrivals": {"process": "burst", "num_requests": 1}, "lengths": {"prompt": prompt, "output": output}}
    scenario = {"fleets": [{"name": "fleet"} | data], "workload": workload, "meter_interval_s": ONE_READING_S}
    catalog = load_catalog()
    try:
        loaded = load(given(scenario | {"seed": seed}), catalog=catalog)
    except ScenarioErrors as error:
        strip = partial(_inside, prefix="fleets.0.pools.0." if one_pool else "fleets.0.")
        raise ScenarioErrors(map(strip, error.errors)) from None
    plan = resolve(loaded, cases(loaded)[0], catalog)
    brought = GivenWorkload.model_validate(workload)
    brought._table = table
    return replace(plan, workload=brought)


def _inside(error: InputError, prefix: str) -> InputError:
    """*error* with its place in the fleet that was given."""
    return replace(error, where=error.where.removeprefix(prefix).removeprefix("fleets.0."))
