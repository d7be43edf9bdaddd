"""Stored answers under other terms equal fresh ones, to the last digit and without a simulation."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from financed_answers import CATALOG, answered, few_loads

from sim.answers.loaded import QuestionAnswers, repeatable
from sim.answers.questions import RepeatableQuestion
from sim.report.breakeven import notes, ranking_rows
from sim.report.financing_tables import financing_rows, month_rows
from sim.scenario.reading.errors import ScenarioErrors

LEASE = "breakeven.financing.leasing.lease"
OF_FINANCING = {
    **{"finance.loan.rate": 0.12, "finance.loan.share": 0.4, "finance.loan.term_months": 12, "finance.tax.rate": 0.4},
    **{f"{LEASE}.payment": 0.02, f"{LEASE}.term_months": 4},
}
OF_THE_BILL = {"finance.discount_rate": 0.2, "site.pue": 1.5}


@pytest.fixture(scope="module", autouse=True)
def _few_loads() -> Iterator[None]:
    with few_loads():
        yield


def of(run: Path) -> QuestionAnswers:
    question = repeatable(run)
    assert isinstance(question, RepeatableQuestion)
    return QuestionAnswers(run, CATALOG, question)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, QuestionAnswers]:
    return {name: of(answered(tmp_path_factory.mktemp(name), name)) for name in ("breakeven", "plan")}


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.csv")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values"), [("breakeven", OF_FINANCING), ("breakeven", OF_THE_BILL), ("plan", OF_FINANCING | OF_THE_BILL)]
)
def test_changed_terms_give_the_tables_of_a_fresh_answer(
    stored: dict[str, QuestionAnswers], tmp_path: Path, name: str, values: dict[str, Any]
) -> None:
    fresh = tables(answered(tmp_path, name, **values))
    stored[name].write(tmp_path / "changed", values, ["test"], False, [])
    changed = tables(tmp_path / "changed")
    if values is OF_THE_BILL:  # the load at which the cheapest changes is found by simulations
        for both in (fresh, changed):
            *inputs, _load = both["tipping.csv"].splitlines()
            both["tipping.csv"] = b"".join(inputs)
    assert changed == fresh
    assert tables(stored[name].run)["financing.csv"] != fresh["financing.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("values", [OF_FINANCING, OF_THE_BILL])
def test_the_quick_evaluation_has_the_figures_of_the_whole(
    stored: dict[str, QuestionAnswers], values: dict[str, Any]
) -> None:
    one = stored["breakeven"]
    quick = one.under(values)
    assert one.under(dict(values)) is quick, "the last answer is kept"
    whole = one.question.evaluate(quick.scenario, CATALOG, one._measured)
    assert ranking_rows(quick.found) == ranking_rows(whole)
    for rows in (financing_rows, month_rows):
        assert rows(quick.found.financings, "candidate") == rows(whole.financings, "candidate")
    assert quick.found.tips_searched == (values is OF_FINANCING)
    if quick.found.tips_searched:
        assert (quick.found.tipping, quick.found.by_load) == (whole.tipping, whole.by_load)
    else:
        assert "is interpolated, not simulated" in " ".join(notes(whole, quick.scenario))
    assert one.under({}) is one.stated


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("finance.loan.share", 1.5, "must be at most 1, not 1.5"),
        ("breakeven.financing.leasing.lease.term_months", 7, "do not fill life_years"),
        ("horizon_s", 9, "is not a cost input"),
        ("breakeven.load", 9.5, "needs loads that were not simulated: run gpufleet breakeven with it"),
        ("fleets.0.cost.share", True, "simulate it anew"),
    ],
)
def test_values_without_an_answer_are_refused(
    stored: dict[str, QuestionAnswers], path: str, value: Any, text: str
) -> None:
    with pytest.raises(ScenarioErrors) as found:
        stored["breakeven"].under({path: value})
    assert text in str(found.value)


@pytest.mark.slow
def test_a_run_without_its_simulations_states_what_is_missing(
    stored: dict[str, QuestionAnswers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(stored["breakeven"].run, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("sim.study.execution.digest.program_digest", lambda: "another")
        with pytest.raises(ScenarioErrors, match="the program has changed since this run was simulated"):
            of(run)
    (run / "points" / ".building-x").mkdir()
    for point in (run / "points").glob("[!.]*"):  # the search for a crossing simulates some that the answer lacks
        shutil.rmtree(point)
    with pytest.raises(ScenarioErrors, match="the run is not complete"):
        of(run)
    assert (run / "points" / ".building-x").exists(), "another process may write it"
