"""`sim.check`: resolution and validation of a scenario without a simulation."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from sim.api.errors import Infeasible
from sim.api.prepared import Catalogs, Given, Prepared, Values, as_read
from sim.jobs.kinds import kind_of
from sim.jobs.load import load_job
from sim.message import Message, joined, placed
from sim.report.check import LIMITS, MEMORY_PARTS, SIZES, host_memory_tables, memory_table, pools_table
from sim.report.page.page import notebook_html
from sim.report.words.money import showing
from sim.scenario.reading.load import has_job, load_for_size
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.describe import describe
from sim.scenario.sweep import cases


class CheckResult:
    """Resolved scenario. A notebook shows its pools and memory.

    `scenario` is the checked scenario, `cases` the number of simulations that it needs, `plans` the resolved plan of
    each fleet at each point, as in resolved.yaml.
    """

    def __init__(self, prepared: Prepared) -> None:
        scenario, catalog = prepared.scenario, prepared.catalog
        found = cases(scenario)
        self.scenario = scenario
        self.cases = len(found)
        first = [case for case in found if case.replication == 0]
        self._plans = [(case.axes, describe(resolve(scenario, case, catalog), catalog)) for case in first]
        self.plans: list[dict[str, Any]] = [{"axes": axes, **plan} for axes, plan in self._plans]
        unable = dict.fromkeys(placed(plan["fleet"], plan["infeasible"]) for plan in self.plans if plan["infeasible"])
        self.verdict: str = Message("{cases} case{plural} to simulate.", self.cases, "s" * (self.cases != 1))
        if unable:
            self.verdict += Message(" Cannot run: {unable}.", joined("; ", [*unable]))
        else:
            self.verdict += " Every fleet can run." if scenario.fleets else " No fleets: sim.size chooses them."
        notes = [note for plan in self.plans for note in plan["notes"]]
        self.findings: tuple[str, ...] = tuple(dict.fromkeys(notes))
        if self.plans and all(plan["infeasible"] for plan in self.plans):
            raise Infeasible(unable, self)

    @property
    def table(self) -> pd.DataFrame:
        """Pools as rows, by fleet and point: GPUs, layout, limits, KV cache [tokens] and memory of a GPU [GB].

        With weights in host memory, also the host memory of a replica [GB].
        """
        return pd.DataFrame([row for axes, plan in self._plans for row in _rows(axes, plan)])

    @property
    def values(self) -> pd.DataFrame:
        """Catalogue values of each fleet as rows: path, value, unit, source, kind, date and place."""
        rows = [{"fleet": plan["fleet"], **value} for plan in self.plans for value in plan["values"]]
        return pd.DataFrame(rows).drop_duplicates(["fleet", "path"], ignore_index=True) if rows else pd.DataFrame()

    def _repr_html_(self) -> str:
        with showing(self.scenario):
            tables = [pools_table(self._plans), memory_table(self._plans)] if self._plans else []
            tables += host_memory_tables(self._plans)
            return notebook_html(self.scenario.name, self.verdict, self.findings, tables)

    def __repr__(self) -> str:
        return f"<sim.{type(self).__name__} {self.scenario.name}: {self.verdict}>"


def _scaler(pool: dict[str, Any]) -> dict[str, Any]:
    """Return the autoscaler of a described *pool*, which sets the number of replicas in a run; empty without one."""
    return pool.get("autoscaling") or {}


def _rows(axes: dict[str, Any], plan: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return [
        {
            "fleet": plan["fleet"],
            **axes,
            "pool": pool["name"],
            "gpu": pool["gpu"],
            "gpus": pool.get("gpus", None if _scaler(pool) else pool["replicas"] * pool["gpus_per_replica"]),
            "server": pool["server"],
            "replicas": None if _scaler(pool) else pool["replicas"],
            **(
                {f"{end}_replicas": _scaler(pool)[f"{end}_replicas"] for end in ("min", "max")} if _scaler(pool) else {}
            ),
            **{size: pool[size] for size in SIZES},
            **{limit: pool["batching"].get(limit) for limit in LIMITS},
            "kv_tokens": pool["kv_tokens"],
            **{f"memory_{part}_gb": (pool["memory_gb_per_gpu"] or {}).get(part) for part in MEMORY_PARTS},
            **{f"host_memory_{part}_gb": gb for part, gb in pool.get("host_memory_gb_per_replica", {}).items()},
            "infeasible": plan["infeasible"],
        }
        for pool in plan["pools"]
    ]


class JobCheck(CheckResult):
    """Resolved scenario with a job or jobs. A notebook shows its expected results.

    `scenario` is the checked scenario, `cases` the number of fleets times points, `plans` the resolved plan of each
    fleet at each point, as in resolved.yaml.
    """

    def __init__(self, prepared: Prepared) -> None:
        read: Any = prepared.scenario
        self.scenario = read
        kind = kind_of(read)
        rows = kind.rows(read, prepared.catalog)
        self._tables, self.cases = kind.tables(rows), len(rows)
        self.plans = kind.described(rows, prepared.catalog)
        verdict = kind.verdict(rows)
        self.verdict, self.findings = verdict.headline, verdict.findings
        if not any(row.ok for row in rows):
            raise Infeasible(verdict.findings, self)

    @property
    def table(self) -> pd.DataFrame:
        """Plans as rows, by fleet and point, without sources; columns of nested parts have dotted names."""
        plain = [{key: plan[key] for key in plan if key not in ("values", "sources", "charges")} for plan in self.plans]
        return pd.json_normalize(plain)

    def _repr_html_(self) -> str:
        with showing(self.scenario):
            return notebook_html(self.scenario.name, self.verdict, self.findings, self._tables)


def check(
    scenario: Given,
    set: Values | None = None,
    replications: int | None = None,
    *,
    seed: int | None = None,
    catalog: Catalogs = (),
) -> CheckResult:
    """Resolve and validate a scenario, as `gpufleet check` does; nothing is simulated or written.

    Parameters
    ----------
    scenario
        Path of a scenario file, name of a shipped scenario, dict with the keys of such a file, or Scenario.
    set
        Values that replace those of the scenario, by dotted path: {"workload.arrivals.rate_rps": 0.5}.
    replications
        Number of replications in place of the scenario's.
    seed
        Seed in place of the scenario's.
    catalog
        Folder, or folders, with catalogue entries of your own; gpufleet.d beside the scenario is read anyway.

    Returns
    -------
    CheckResult
        Resolved scenario; a JobCheck for a scenario with `job` or `jobs`.

    Raises
    ------
    ScenarioErrors
        With all mistakes of the scenario at once.
    Infeasible
        If no fleet can run.

    Examples
    --------
    >>> import sim
    >>> found = sim.check("4x4090-vs-2xa100", {"workload.arrivals.rate_rps": 0.5})
    >>> found.table[["gpu", "tensor_parallel_size"]].values.tolist()
    [['rtx-4090', 4], ['a100-80gb-pcie', 2]]

    """
    if has_job(as_read(scenario)):
        return JobCheck(Prepared(scenario, set, seed=seed, replications=replications, read=load_job, catalog=catalog))
    return CheckResult(
        Prepared(scenario, set, seed=seed, replications=replications, read=load_for_size, catalog=catalog)
    )
