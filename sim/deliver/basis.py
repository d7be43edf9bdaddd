"""What an answer rests on, beside it in its folder."""

from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.scenario.schema import Scenario
from sim.study.cases.points import resolved_plans
from sim.study.price.reprice import keep_scenario
from sim.yamlio import dump


def keep_basis(folder: Path, scenario: Scenario, catalog: Catalog) -> list[dict[str, object]]:
    """Writes scenario.yaml, and resolved.yaml without the sweep, into *folder*; returns what is in the latter."""
    resolved = resolved_plans(scenario.model_copy(update={"sweep": None}), catalog)
    keep_scenario(folder, scenario)
    (folder / "resolved.yaml").write_text(dump(resolved), encoding="utf-8")
    return resolved
