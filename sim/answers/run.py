"""Simulation of a scenario, or repricing of a run, and output of its results folder."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sim.answers.folder import begin, own_catalogue, replaced_together
from sim.catalogue.catalog import Catalog
from sim.language import ENGLISH, N_, speaking
from sim.report.monte_carlo import sentences
from sim.report.prediction_accuracy import confidences_by_key
from sim.report.price_age import price_age_note
from sim.report.progress import CaseProgress
from sim.report.run.report import write_report
from sim.report.run.verdict import sold_in
from sim.report.words.money import in_its_currency
from sim.report.words.precision import precision_notes, statistics_entries
from sim.report.words.service_level import availability_notes
from sim.scenario.checks.hardware import gpus_without_server_notes
from sim.scenario.schema import Scenario
from sim.scenario.sections.comparison import models_of
from sim.scenario.sweep import axes
from sim.study.execution.cases import Workplace, limits, resolved_plans, run_points
from sim.study.execution.durable import MANIFEST
from sim.study.execution.store import StoredCase
from sim.study.monte_carlo import DISPUTES, disputes_of, monte_carlo_study
from sim.study.points import summarize
from sim.study.reprice import keep_scenario, reprice
from sim.study.year import year_of


@in_its_currency
def run_scenario(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    report: bool,
    quiet: bool,
    command: Sequence[str],
    force: bool = False,
) -> list[StoredCase]:
    """Simulate all cases of *scenario*, and write tables and, with *report*, pictures to *out*.

    Finished cases appear in `out/points` during the run; the other files are replaced together at the end.
    """
    entries = begin(out, scenario, command, "run", force) | own_catalogue(catalog)
    with CaseProgress(quiet) as progress:
        cases = run_points(scenario, catalog, out, workplace, progress)
    with CaseProgress(quiet, N_("writing the results"), later_stage=True):
        _finish(scenario, catalog, out, cases, report, entries)
    return cases


@in_its_currency
def price_run(
    run: Path,
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    report: bool,
    command: Sequence[str],
    force: bool = False,
) -> list[StoredCase]:
    """Bill the finished *run* under the prices of *scenario*, and write the same files to *out*."""
    entries = begin(out, scenario, command, "price", force) | own_catalogue(catalog) | {"repriced_from": str(run)}
    cases = reprice(run, scenario, catalog, out)
    _finish(scenario, catalog, out, cases, report, entries)
    return cases


def _finish(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    cases: Sequence[StoredCase],
    report: bool,
    entries: dict[str, Any],
) -> None:
    """Write tables, report and the scenario itself, which replace the earlier files together."""
    study = monte_carlo_study(scenario, catalog, cases)
    answers: list[str] = []
    drawn: dict[str, Any] = {}
    if study is not None:
        points = summarize(cases, axes(scenario), limits(scenario))
        with speaking(ENGLISH):  # the manifest stores these sentences, in English whatever the language
            answers = sentences(study, points, axes(scenario))
        drawn = {"futures": answers, DISPUTES: [asdict(one) for one in disputes_of(study, points)]}
    entries = entries | {"cases": len(cases)} | drawn | statistics_entries(scenario, cases)
    with replaced_together(out, entries, [case.folder.name for case in cases]) as folder:
        write_report(
            folder,
            cases,
            resolved_plans(scenario, catalog),
            scenario.name,
            scenario.question,
            axes(scenario),
            limits(scenario),
            scenario.requests,
            with_pictures=report,
            year=partial(year_of, scenario, catalog),
            notes=[
                *precision_notes(scenario, cases),
                *gpus_without_server_notes(scenario, catalog),
                *price_age_note(scenario, catalog),
                *availability_notes(scenario.slo),
                *answers,
            ],
            monte_carlo=study,
            confidences=partial(confidences_by_key, scenario, catalog),
            models=models_of(scenario, scenario.compare),
            chargeback=scenario.chargeback,
            sold=sold_in(scenario),
        )
        keep_scenario(folder, scenario)


def monte_carlo_notes(folder: Path) -> list[str]:
    """Return the Monte Carlo sentences of the finished run in *folder*; empty where nothing was uncertain."""
    entries: list[str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8")).get("futures", [])
    return entries
