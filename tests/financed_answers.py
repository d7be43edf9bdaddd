"""Small answers of `breakeven` and `plan` with a loan, a lease and income tax, which tests share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from small_scenario import OWN_OR_RENTED, variant

from sim.answers.answer import write_answer
from sim.answers.questions import QUESTIONS
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.layers import options
from sim.scenario.reading.load import load
from sim.study import breakeven, breakeven_costs
from sim.study.execution.cores import ProcessPool

CATALOG = load_catalog()
CHANGES = {
    "workload.arrivals": {"process": "constant", "rate_rps": 4},
    "horizon_s": 8,
    "fleets.1": ...,
    "finance.loan": {"share": 0.6, "rate": 0.07, "term_months": 9},
    "finance.tax": {"rate": 0.25},
    "breakeven": {
        "months": 12,
        "also": {"own": {"rented": {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}}}},
        "financing": {"leasing": {"lease": {"term_months": 6, "payment": 0.05}}},
    },
    "plan": {"years": 1, "starts": "2027-01", "demand": {"growth_per_year": 0.5}},
}


@contextmanager
def few_loads() -> Iterator[None]:
    """Search few tipping points, from few simulated loads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(breakeven_costs, "UTILISATIONS", (0.5, 1.0))
        patch.setattr(breakeven, "LOADS_SHOWN", 2)
        patch.setattr(breakeven, "STEPS", 3)
        patch.setattr(breakeven, "HALVINGS", 4)
        patch.setattr(
            breakeven, "INPUTS", {path: breakeven.INPUTS[path] for path in ("finance.life_years", "site.pue")}
        )
        yield


def answered(folder: Path, name: str, **values: Any) -> Path:
    """Return the folder of a fresh answer with *values*."""
    file = folder / "s.yaml"
    file.write_text(variant(OWN_OR_RENTED, CHANGES))
    scenario, question = load(file, options(values), catalog=CATALOG, swept=False), QUESTIONS[name]
    with ProcessPool(1) as cores:
        write_answer(question, scenario, CATALOG, folder / name, cores, report=False)
    return folder / name
