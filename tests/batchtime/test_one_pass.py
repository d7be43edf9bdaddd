"""Step times of one-pass services by hand, and their parts."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from sim.batchtime.one_pass import AffineBatch, OnePass, OnePassStepTime, unit_of
from sim.batchtime.roofline import Device, DeviceSpeed
from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import OtherModel
from sim.catalogue.value import Value
from sim.records import Batch

CATALOG = load_catalog()
DEVICE = Device("none", "none", "int8", flops=1e12, bytes_per_s=1e12, sms=100, tdp_w=300)
SPEED = DeviceSpeed(flops=1e12, bytes_per_s=1e9, weight_bytes_per_s=2e9, kernel_s=1e-4)


def service(flops: float, params: float, moved: float) -> OtherModel:
    model = CATALOG.any_model("resnet-50")
    assert isinstance(model, OtherModel)
    sizes = {"flops_per_sample": flops, "params": params, "traffic_elements_per_sample": moved, "kernels": 10}
    return model.model_copy(
        update={key: Value(value=size, source="test", kind="computed") for key, size in sizes.items()}
    )


def parts(compute: float = 0.0, memory: float = 0.0, overhead: float = 0.0) -> object:
    whole = {"compute": compute, "memory": memory, "attention": 0.0, "link": 0.0, "overhead": overhead}
    return pytest.approx(whole, abs=1e-15)


def test_launches_and_arithmetic_alone() -> None:
    # two requests of two samples of 3 GFLOP at 1 TFLOP/s: 12 ms after 10 launches of 0.1 ms
    model = OnePassStepTime(OnePass(samples_per_request=2), service(3e9, 0, 0), DEVICE, SPEED)
    batch = Batch(decode_seqs=2)
    leap = model.leap(batch)
    assert leap.first_s == pytest.approx(0.013)
    assert leap.load == pytest.approx(12 / 13)
    assert model.breakdown(batch) == parts(compute=0.012, overhead=0.001)
    slow = replace(model, rate=0.5)
    assert slow.leap(batch).first_s == pytest.approx(0.026)
    assert slow.leap(batch).load == pytest.approx(12 / 13)
    assert slow.breakdown(batch) == parts(compute=0.024, overhead=0.002)


def test_weights_are_read_once_and_traffic_for_each_sample() -> None:
    # 4 MB of weights at 2 GB/s and three samples of 1 MB at 1 GB/s: 2 + 3 ms
    model = OnePassStepTime(OnePass(), service(0, 4e6, 1e6), DEVICE, SPEED)
    assert model.breakdown(Batch(decode_seqs=3)) == parts(memory=0.005, overhead=0.001)


def test_the_time_is_divided_in_the_proportion_of_its_causes() -> None:
    # 3 ms of arithmetic beside 1 ms of memory
    model = OnePassStepTime(OnePass(), service(3e9, 0, 1e6), DEVICE, SPEED)
    found, leap = model.breakdown(Batch(decode_seqs=1)), model.leap(Batch(decode_seqs=1))
    assert sum(found.values()) == pytest.approx(leap.first_s)
    assert found["compute"] == pytest.approx(3 * found["memory"])
    assert 0.003 < found["compute"] + found["memory"] < 0.004


def test_a_request_with_several_samples_is_a_query() -> None:
    model = service(1, 1, 1)
    assert unit_of(OnePass(samples_per_request=2), model) == "query"
    assert unit_of(OnePass(samples_per_request=1), model) == "image"
    assert unit_of(OnePass(), None) == unit_of(object(), None) == "unit"


def test_an_affine_batch_by_hand() -> None:
    spec = AffineBatch(model="affine_batch", base_s=0.01, per_item_s=0.002)
    assert spec.leap(Batch(decode_seqs=5)).first_s == pytest.approx(0.02)
    assert spec.breakdown(Batch(decode_seqs=5)) == parts(compute=0.01, overhead=0.01)


@pytest.mark.parametrize(("base_s", "per_item_s"), [(0.01, 0.0), (0.0, 0.01)])
def test_one_coefficient_is_enough(base_s: float, per_item_s: float) -> None:
    assert AffineBatch(model="affine_batch", base_s=base_s, per_item_s=per_item_s).leap(Batch(decode_seqs=1)).first_s


def test_a_batch_takes_time() -> None:
    with pytest.raises(ValidationError, match="both coefficients are 0"):
        AffineBatch(model="affine_batch", base_s=0.0, per_item_s=0.0)
