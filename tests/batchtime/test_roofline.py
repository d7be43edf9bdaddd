"""Laws of the batch time, and figures worked by hand."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sim.batchtime.coefficients import load_coefficients
from sim.batchtime.roofline import (
    EXPONENT,
    BatchWork,
    Device,
    DeviceSpeed,
    ServiceFactors,
    batch_time_s,
    device_of,
    largest_batch_within,
    missing_work,
    slice_of,
    speed_of,
    work_of,
)
from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import OtherModel
from sim.catalogue.value import Value

CATALOG = load_catalog()
COEFFICIENTS = load_coefficients(CATALOG.root / "batchtime.yaml")
PLAIN = ServiceFactors(
    compute=1.0, memory=1.0, traffic=1.0, kernels=1.0, launch_s=1e-6, wave=0.0, power_exponent=0.0, slice_speed=1.0
)
DEVICE = Device("none", "none", "int8", flops=1e12, bytes_per_s=1e12, sms=100, tdp_w=300)
SERVICES = [name for name in CATALOG.ids("models") if isinstance(CATALOG.any_model(name), OtherModel)]


def service(name: str) -> OtherModel:
    model = CATALOG.any_model(name)
    assert isinstance(model, OtherModel)
    return model


def time_s(name: str, gpu: str, samples: float, precision: str = "int8", **sizes: int) -> float:
    model, device = service(name), device_of(CATALOG.gpu(gpu), precision)  # type: ignore[arg-type]
    assert device is not None
    factors = COEFFICIENTS.factors(model, device)
    return batch_time_s(work_of(model, device.precision, samples, **sizes), speed_of(device, factors))


def test_work_of_a_batch_by_hand() -> None:
    work = work_of(service("resnet-50"), "fp16", 4)
    assert (work.flops, work.weight_bytes) == (4 * 8.18e9, 2 * 2.56e7)
    assert (work.traffic_bytes, work.kernels) == (4 * 2 * 2.83e7, 55)


def test_an_image_is_steps_times_calls_and_one_decoding() -> None:
    work = work_of(service("sdxl-base"), "fp16", 1)
    assert work.flops == pytest.approx(20 * 2 * 6.761e12 + 1.047e13)
    doubled = work_of(service("sdxl-base"), "fp16", 1, resolution=2048)
    assert doubled.flops == pytest.approx(40 * (4 * (6.761e12 - 7.52e11) + 16 * 7.52e11) + 4 * 1.047e13)
    more = work_of(service("sdxl-base"), "fp16", 1, steps=30)
    assert more.flops - work.flops == pytest.approx(20 * 6.761e12)
    assert more.kernels == 1.5 * work.kernels


def test_launches_alone_compute_alone_and_memory_alone() -> None:
    speed = speed_of(DEVICE, PLAIN)
    model = service("resnet-50")
    nothing = work_of(model, "int8", 0)
    assert batch_time_s(nothing, speed) == pytest.approx(55e-6 + 2.56e7 / 1e12)
    huge = work_of(model, "int8", 1000)
    compute, memory = huge.flops / 1e12, (huge.weight_bytes + huge.traffic_bytes) / 1e12
    assert max(compute, memory) < batch_time_s(huge, speed) - 55e-6 < compute + memory


@pytest.mark.parametrize("name", SERVICES)
def test_larger_batch_is_slower_but_faster_per_sample(name: str) -> None:
    times = [time_s(name, "a100-80gb-sxm", samples) for samples in (1, 2, 4, 8, 64)]
    assert times == sorted(times)
    per_sample = [seconds / samples for seconds, samples in zip(times, (1, 2, 4, 8, 64), strict=True)]
    assert per_sample == sorted(per_sample, reverse=True)


def test_eight_bits_are_faster_than_sixteen() -> None:
    assert time_s("bert-large", "h100-80gb-sxm", 64) < time_s("bert-large", "h100-80gb-sxm", 64, "fp16")


def test_precisions_that_a_card_lacks_have_no_device() -> None:
    assert device_of(CATALOG.gpu("a100-80gb-sxm"), "fp8") is None


def test_a_slice_has_its_sms_and_its_memory_slices() -> None:
    gpu = CATALOG.gpu("a100-80gb-sxm")
    whole = device_of(gpu, "int8")
    assert whole is not None
    one = slice_of(gpu, "1g.10gb", "int8")
    assert one is not None
    assert one.flops == pytest.approx(624e12 * 14 / 108)
    assert one.bytes_per_s == pytest.approx(2.039e12 / 8)
    assert one.flops / one.tdp_w == pytest.approx(whole.flops / whole.tdp_w)
    h100 = CATALOG.gpu("h100-80gb-sxm").mig
    assert h100 is not None
    assert [h100.sms(name) for name in ("1g.10gb", "1g.20gb", "3g.40gb", "7g.80gb")] == [16, 26, 60, 132]
    with pytest.raises(KeyError):
        slice_of(gpu, "1g.5gb", "int8")


def test_the_largest_batch_waits_for_one_and_runs_its_own() -> None:
    assert largest_batch_within(lambda batch: 0.001 + 0.001 * batch, 0.020, 100) == pytest.approx(9, abs=1e-3)
    assert largest_batch_within(lambda batch: 0.001 * batch, 10.0, 64) == 64
    assert largest_batch_within(lambda batch: 1.0, 0.1, 64) == pytest.approx(1, abs=1e-3)


def test_times_of_arithmetic_and_memory_overlap() -> None:
    speed = DeviceSpeed(flops=100.0, bytes_per_s=10.0, weight_bytes_per_s=20.0, kernel_s=0.5)
    # 3 s of arithmetic; 40 bytes of weights in 2 s and 10 of traffic in 1 s; 4 launches
    work = BatchWork(flops=300.0, weight_bytes=40.0, traffic_bytes=10.0, kernels=4)
    assert batch_time_s(work, speed) == pytest.approx(4 * 0.5 + 3 * 2 ** (1 / EXPONENT))


def test_a_denoiser_reads_its_weights_in_every_step() -> None:
    model = service("sdxl-base")
    assert model.params is not None
    assert work_of(model, "fp16", 3, steps=7).weight_bytes == 7 * 2 * model.params.value


def test_a_card_has_the_factors_of_its_architecture_and_its_own() -> None:
    half, most = (Value(value=number, source="test", kind="fitted") for number in (0.5, 0.8))
    table = COEFFICIENTS.model_copy(update={"architectures": {"Old": half}, "gpus": {"slow": most}})
    model = service("resnet-50")
    compute = table.of(model).compute.value
    for gpu, architecture, factor in (("x", "X", 1.0), ("x", "Old", 0.5), ("slow", "X", 0.8), ("slow", "Old", 0.4)):
        factors = table.factors(model, replace(DEVICE, gpu=gpu, architecture=architecture))
        assert factors.compute == pytest.approx(compute * factor)


def test_a_missing_figure_is_named() -> None:
    model = service("resnet-50")
    assert missing_work(model) == ()
    assert missing_work(model.model_copy(update={"kernels": None})) == ("kernels",)
    with pytest.raises(KeyError, match="kernels"):
        work_of(model.model_copy(update={"kernels": None}), "fp16", 1)


def test_two_batch_times_may_reach_the_limit() -> None:
    assert largest_batch_within(lambda batch: batch, 16.0, 8) == 8
    assert largest_batch_within(lambda batch: batch, 15.0, 8) == pytest.approx(7.5, abs=1e-4)
    assert largest_batch_within(lambda batch: batch, 0.5, 1) == 1


def test_counted_figures_are_those_of_the_script(root: Path) -> None:
    sys.path.insert(0, str(root / "benchmarks" / "fit"))
    import work

    for name, counted in work.NETWORKS.items():
        count, model = counted(), service(name)
        assert model.flops_per_sample is not None
        assert model.traffic_elements_per_sample is not None
        assert model.kernels is not None
        assert model.flops_per_sample.value == pytest.approx(count.flops, rel=2e-3), name
        assert model.traffic_elements_per_sample.value == pytest.approx(count.moved, rel=5e-3), name
        assert model.kernels.value == count.kernels, name
        widest = max(count.widest, work.decoder(work.DECODERS[name]).widest if name in work.DECODERS else 0)
        assert model.widest_elements_per_sample is not None
        assert model.widest_elements_per_sample.value == pytest.approx(widest, rel=1e-3), name
        if model.generator is not None:
            decoded = work.decoder(work.DECODERS[name])
            assert model.generator.decoder_flops.value == pytest.approx(decoded.flops, rel=2e-3)
            assert model.generator.attention_flops_per_call.value == pytest.approx(2 * count.attention_macs, rel=5e-3)
