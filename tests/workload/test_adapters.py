"""Draws of LoRA adapters: popularity, and who keeps an adapter."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from pydantic import ValidationError

from sim.records import Request
from sim.rng import stream
from sim.workload.adapters import AdapterDraws, Adapters
from sim.workload.tenants import Tenant

STREAMS = partial(stream, 1, 0)


def test_adapters_are_drawn_by_zipf_and_each_caches_its_own_prefixes() -> None:
    draws = AdapterDraws(Adapters(count=3, zipf=1, base_share=0.25), (), STREAMS)
    requests = [Request(i, 0.0, 64, 1, block_hashes=(7,)) for i in range(6000)]
    for request in requests:
        draws.give(request)
    counts = Counter(request.adapter for request in requests)
    shares = np.array([1, 1 / 2, 1 / 3]) / (11 / 6) * 0.75
    for name, share in zip(["adapter-1", "adapter-2", "adapter-3", ""], [*shares, 0.25], strict=True):
        assert counts[name] / 6000 == pytest.approx(share, abs=0.02)
    assert len({request.block_hashes for request in requests}) == 4
    assert len({(request.adapter, request.block_hashes) for request in requests}) == 4


def test_a_session_and_a_tenant_keep_their_adapter() -> None:
    draws = AdapterDraws(Adapters(weights={"a": 1, "b": 1}), (Tenant(name="t", adapter="own"),), STREAMS)
    of_sessions = {draws.name(Request(i, 0.0, 1, 1, session=f"s{i % 20}")) for i in range(200)}
    assert of_sessions == {"a", "b"}
    assert len({draws.name(Request(i, 0.0, 1, 1, session="s3")) for i in range(50)}) == 1
    assert draws.name(Request(0, 0.0, 1, 1, tenant="t", session="s3")) == "own"


def test_adapters_have_one_law() -> None:
    for wrong in ({}, {"count": 2, "weights": {"a": 1}}, {"weights": {}}, {"weights": {"a": 1}, "zipf": 1}):
        with pytest.raises(ValidationError):
            Adapters.model_validate(wrong)


def test_names_and_their_intervals_by_hand() -> None:
    squares = Adapters(count=3, zipf=2)
    assert squares.names == ["adapter-1", "adapter-2", "adapter-3"]
    # 1, 1/4 and 1/9 of 49/36
    assert squares.ends() == pytest.approx([36 / 49, 45 / 49, 1])
    assert Adapters(count=2).ends() == pytest.approx([2 / 3, 1])
    assert Adapters(count=2, zipf=0, base_share=0.5).ends() == pytest.approx([0.25, 0.5])
    weighed = Adapters(weights={"b": 3, "a": 1}, base_share=0.2)
    assert (weighed.names, weighed.ends().tolist()) == (["b", "a"], pytest.approx([0.6, 0.8]))


def test_without_adapters_a_request_uses_the_base_model() -> None:
    draws = AdapterDraws(None, (Tenant(name="t", adapter="own"),), STREAMS)
    assert [draws.name(Request(i, 0.0, 1, 1, tenant=name)) for i, name in enumerate(("t", "u", ""))] == ["own", "", ""]


def test_the_adapter_of_a_request_depends_on_its_number_alone() -> None:
    adapters = Adapters(count=5)
    forwards, backwards = (AdapterDraws(adapters, (), STREAMS) for _ in range(2))
    # draws come in blocks of 4,096
    numbers = [0, 1, 4095, 4096, 9000]
    names = {i: forwards.name(Request(i, 0.0, 1, 1)) for i in numbers}
    assert {i: backwards.name(Request(i, 0.0, 1, 1)) for i in reversed(numbers)} == names
