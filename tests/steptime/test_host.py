"""Steps formed while one runs: host and GPU work side by side, and a share of the shorter adds to the longer."""

from dataclasses import replace

import pytest

from sim.records import Batch
from sim.steptime import Roofline


def decodes(sequences, context):
    return Batch(decode_seqs=sequences, sampled_seqs=sequences, kv_tokens=sequences * context)


@pytest.fixture
def both(build):
    """(host after the GPU, host beside it), with a fifth of the shorter exposed."""
    after = build("llama3.1-8b", "a100-80gb-sxm")
    return after, Roofline().build(replace(after.inputs, forms_ahead=True))


@pytest.mark.parametrize(("sequences", "context"), [(1, 100), (128, 1000), (1024, 10), (512, 4000)])
def test_the_longer_counts_and_a_share_of_the_shorter(both, sequences, context):
    after, beside = both
    batch = decodes(sequences, context)
    host_s = 1e-3 + 40e-6 * sequences
    gpu_s = after.leap(batch).first_s - host_s
    expected = max(gpu_s, host_s) + beside.inputs.coefficients.exposed_share.value * min(gpu_s, host_s)
    assert beside.leap(batch).first_s == pytest.approx(expected)
    assert sum(beside.breakdown(batch).values()) == pytest.approx(expected)


@pytest.mark.parametrize(("host_factor", "gpu_counts"), [(1, 1), (100, None)])
def test_the_shorters_causes_count_as_far_as_they_add_to_the_longer(both, host_factor, gpu_counts):
    inputs, batch = both[1].inputs, decodes(128, 1000)
    gpu_counts = gpu_counts or inputs.coefficients.exposed_share.value
    spec = Roofline(host_factor=host_factor)
    alone, together = (spec.build(replace(inputs, forms_ahead=ahead)).breakdown(batch) for ahead in (False, True))
    for cause in ("compute", "memory", "attention"):
        assert together[cause] == pytest.approx(gpu_counts * alone[cause])
    assert (max(together, key=together.get) == "overhead") == (host_factor == 100)


@pytest.mark.parametrize("sequences", [64, 1024])
def test_a_leap_is_its_steps_one_by_one(both, sequences):
    """Also where the GPU, whose work grows, comes to take longer than the host."""
    _, beside = both
    leap, step = beside.leap(decodes(sequences, 100)), 0
    for step in range(int(min(leap.valid_steps, 200))):
        one = beside.leap(decodes(sequences, 100 + step)).first_s
        assert one == pytest.approx(leap.first_s + step * leap.growth_s)
    assert step > 0
