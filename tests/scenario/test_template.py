"""Tests of the JSON schema that `gpufleet init` writes."""

import pytest

from sim.jobs.schema import QueueScenario
from sim.scenario.schema import Scenario
from sim.scenario.template import documented
from sim.spec import Spec
from sim.training.schema import JobScenario


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
