"""Tests of the JSON schema that `gpufleet init` writes."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from sim.jobs.schema import QueueScenario
from sim.scenario.schema import Scenario
from sim.scenario.template import documented, schema_text
from sim.spec import Spec
from sim.training.schema import JobScenario
from sim.yamlio import read


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Scenario, JobScenario, QueueScenario])
def test_every_key_has_a_meaning(kind: type[Spec]) -> None:
    schema = documented(kind)
    parts = {kind.__name__: schema, **schema["$defs"]}
    keys = [(part, key, field) for part in parts for key, field in parts[part].get("properties", {}).items()]
    assert len(keys) > 100
    assert [f"{part}.{key}" for part, key, field in keys if not field.get("description")] == []


@pytest.mark.slow
def test_a_key_with_one_value_is_described_by_its_class() -> None:
    policy = documented(QueueScenario)["$defs"]["Fifo"]["properties"]["policy"]
    assert policy["description"].startswith("First in, first out: the queue waits behind its first job")


@pytest.mark.slow
def test_the_schema_allows_shipped_scenarios_and_refuses_numbers_out_of_bounds(root: Path) -> None:
    schema = Draft202012Validator(json.loads(schema_text()))
    files = {path: read(path).data for path in (root / "scenarios").glob("*.yaml")}
    whole = {path.name: data for path, data in files.items() if not {"base", "job", "jobs"} & data.keys()}
    assert len(whole) > 10
    assert [name for name, data in whole.items() if not schema.is_valid(data)] == []
    wrong = [{"seed": -1}, {"horizon_s": 0}, {"client": {"jitter": 2}}, {"slo": {"attainment": 1.5}}]
    assert [schema.is_valid(one) for one in wrong] == [False] * len(wrong)
