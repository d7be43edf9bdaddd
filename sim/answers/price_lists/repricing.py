"""Bills of all finished runs of a folder at the newest prices of the catalogue."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.answers.folder import catalogue_of, is_finished, manifest_of, owned
from sim.answers.price_lists.successors import settings_for
from sim.answers.run import price_run
from sim.catalogue.catalog import OWN_FOLDER, load_catalog, own_folders
from sim.catalogue.data_folder import UnknownId
from sim.message import first_line
from sim.report.export.stored_answer import read_table
from sim.scenario.reading.errors import ScenarioErrors
from sim.study.reprice import SCENARIO_FILE, load_repriced

COST = "cost_usd_per_h"


@dataclass(frozen=True, slots=True)
class NewBill:
    """Mean cost of one fleet of a run over its points, before and after."""

    run: Path
    """Folder of the run."""
    fleet: str
    before: float | None
    """Cost at the run's prices [USD/h]."""
    after: float | None
    """Cost at the newest prices [USD/h]."""
    newer: tuple[tuple[str, str, str], ...] = ()
    """(run, offer, newer offer) of each price that was replaced."""
    reason: str = ""
    """Reason why the run is left out; empty if it is billed."""

    @property
    def change(self) -> str:
        """Change in percent; empty without both costs."""
        return f"{self.after / self.before - 1:+.1%}" if self.before and self.after is not None else ""

    @staticmethod
    def shown(cost: float | None) -> str:
        """Return a cost as text; empty for None."""
        return "" if cost is None else f"{cost:.4g}"

    def document(self) -> dict[str, Any]:
        """Return the bill as plain data."""
        return {
            "run": str(self.run),
            "fleet": self.fleet,
            "before_usd_per_h": self.before,
            "after_usd_per_h": self.after,
            "newer_offers": {offer: newer for _, offer, newer in self.newer},
            "left_out": self.reason,
        }


def runs_in(folder: Path) -> list[Path]:
    """Return the folders of finished runs with a bill in *folder*, or *folder* itself if it is one."""
    found = [folder] if is_finished(folder) else sorted(one for one in folder.glob("*") if is_finished(one))
    return [run for run in found if _command(run) == "run" and COST in read_table(run / "summary.csv")]


def rebill(
    run: Path, sets: Sequence[str], catalogs: Sequence[Path], report: bool, command: Sequence[str]
) -> list[NewBill]:
    """Bill *run* at the newest offers on its terms into the folder RUN-repriced, and return its costs by fleet.

    Parameters
    ----------
    run
        Folder of a finished run.
    sets
        Further prices and terms, `path=value`.
    catalogs
        Folders with the user's own entries, beside those of the run and gpufleet.d of the working directory.
    report
        Whether the page is written.
    command
        Words of the command, for the manifest.

    """
    stated = [*catalogs] or [*catalogue_of(run), *((Path(OWN_FOLDER),) if Path(OWN_FOLDER).is_dir() else ())]
    catalog = load_catalog(own=own_folders(None, stated))
    before = _costs(run)
    out = run.with_name(f"{run.name}-repriced")
    try:
        newer = settings_for(load_repriced(run, (), catalog), catalog)
        scenario = load_repriced(run, (*(setting for setting, _, _ in newer), *sets), catalog)
        with owned(out):
            price_run(run, scenario, catalog, out, report, command, force=True)
    except (ScenarioErrors, UnknownId) as error:
        return [NewBill(run, name, cost, None, reason=first_line(str(error))) for name, cost in before.items()]
    after = _costs(out)
    replaced = tuple((run.name, old, new) for _, old, new in newer)
    return [NewBill(run, name, cost, after.get(name), replaced) for name, cost in before.items()]


def _command(run: Path) -> str:
    held = manifest_of(run) or {}
    known = (held.get("question") or {}).get("command") if "repriced_from" not in held else ""
    return str(known) if (run / SCENARIO_FILE).is_file() else ""


def _costs(run: Path) -> dict[str, float]:
    table = read_table(run / "summary.csv").dropna(subset=[COST])
    return {str(name): float(cost) for name, cost in table.groupby("fleet", sort=False)[COST].mean().items()}
