"""What goes wrong in a worker process reaches its caller as the same error, with all that it says."""

import pickle
from pathlib import Path

import pytest

from sim.benchdata.errors import BenchdataError
from sim.catalogue.catalog import UnknownId
from sim.catalogue.hf_config.config import ConfigError
from sim.coldstart.start import StartUnknown
from sim.cost.price_book import CostError, Problem, RateMissing
from sim.jobs.traces import SHOWN, JobTraceError
from sim.workload.traces.trace_file import TraceError
from sim.yamlio import YamlError

ERRORS = [
    BenchdataError([("runs.csv", 3, "tp is no number"), ("runs.csv", 0, "has no rows")]),
    UnknownId("gpu", "a10", ("a100-80gb-sxm", "a10g")),
    ConfigError(Path("config.json"), "hidden_size", "is missing"),
    StartUnknown("startup.load_s", "nobody has measured it"),
    CostError(*(Problem(name, "has no price") for name in ("cost.price", "cost.quotes"))),
    RateMissing(Problem("finance.fx", "has no rate for EUR")),
    JobTraceError([("jobs.csv", line, "no such GPU") for line in range(SHOWN + 5)]),
    TraceError([("trace.csv", 2, "negative"), ("trace.csv", 0, "is empty")]),
    YamlError("scenario.yaml", 7, "a tab"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_out_of_a_process(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
