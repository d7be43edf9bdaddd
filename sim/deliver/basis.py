"""What an answer rests on, beside it in its folder."""

from collections.abc import Sequence
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.scenario.schema import Fleet, Scenario
from sim.study.execution.cases import resolved_plans
from sim.study.reprice import keep_scenario
from sim.yamlio import dump


def keep_basis(
    folder: Path, scenario: Scenario, catalog: Catalog, fleets: Sequence[Fleet] | None = None
) -> list[dict[str, object]]:
    """Writes scenario.yaml, and resolved.yaml of its *fleets* (None: all) without the sweep, into *folder*.

    Returns what is in the latter.
    """
    chosen = {"sweep": None} | ({} if fleets is None else {"fleets": tuple(fleets)})
    resolved = resolved_plans(scenario.model_copy(update=chosen), catalog)
    keep_scenario(folder, scenario)
    (folder / "resolved.yaml").write_text(dump(resolved), encoding="utf-8")
    return resolved
