"""From a scenario to the folder of its plan: simulate units, write everything aside, then swap it in as a whole."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sim.catalog.catalog import Catalog
from sim.report.deliver import MANIFEST, program_version, write_manifest
from sim.report.plan_page import render_plan
from sim.report.plan_picture import write_plan_picture
from sim.report.plan_tables import write_months, write_summary
from sim.report.plan_verdict import verdict
from sim.report.text import first_sentence
from sim.scenario.schema import Scenario
from sim.study.capacity import LoadAxis
from sim.study.execute import Workplace
from sim.study.plan import Outlook, outlooks
from sim.study.points import POINTS, limits, resolved_plans
from sim.study.price import keep_scenario
from sim.study.store import discard_unfinished


def deliver_plan(
    scenario: Scenario, catalog: Catalog, out: Path, workplace: Workplace, relative: float, command: Sequence[str]
) -> list[Outlook]:
    """Plans every fleet and leaves tables, picture and page in *out*; simulated cases appear in `out/points`."""
    started = time.time()
    told = {
        "program": "gpufleet",
        "version": program_version(),
        "scenario": scenario.name,
        "seed": scenario.seed,
        "command": list(command),
        "started_at": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
    }
    out.mkdir(parents=True, exist_ok=True)
    if not (out / MANIFEST).exists():
        write_manifest(out, told | {"status": "unfinished"})
    try:
        found = outlooks(scenario, catalog, out, workplace, relative)
    finally:
        discard_unfinished(out / POINTS)
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))
    try:
        _write(aside, scenario, catalog, found)
        write_manifest(aside, told | {"wall_s": round(time.time() - started, 3), "status": "finished"})
        _swap(aside, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return found


def _write(folder: Path, scenario: Scenario, catalog: Catalog, found: Sequence[Outlook]) -> None:
    plan, axis = scenario.plan, LoadAxis.of(scenario).label
    assert plan is not None
    keep_scenario(folder, scenario)
    write_months(folder / "plan.csv", found, plan)
    write_summary(folder / "summary.csv", found)
    answer = verdict(found, plan)
    asked = first_sentence(scenario.question or scenario.name)[0]
    write_plan_picture(folder / "plan.png", found, plan, axis, asked, answer.headline)
    resolved = resolved_plans(scenario.model_copy(update={"sweep": None}), catalog)
    page = render_plan(found, plan, axis, resolved, limits(scenario), scenario.name, scenario.question, answer)
    (folder / "plan.html").write_text(page, encoding="utf-8")


def _swap(aside: Path, out: Path) -> None:
    """Puts *aside* in the place of *out*; simulated cases move along."""
    aside.chmod(0o755)
    before = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))
    out.replace(before)
    aside.replace(out)
    if (before / POINTS).exists():
        (before / POINTS).replace(out / POINTS)
    shutil.rmtree(before)
