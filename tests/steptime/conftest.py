"""A roofline from catalogue GPUs, links and models, with an engine and formats whose figures the tests know."""

from pathlib import Path

import pytest

from sim.catalogue.engine import Engine, Overheads
from sim.catalogue.gpu import Gpu
from sim.catalogue.kernel import Kernel
from sim.catalogue.link import Link
from sim.catalogue.model import Model
from sim.catalogue.quantization import Quantization
from sim.catalogue.value import Value
from sim.steptime.coefficients import load_coefficients
from sim.steptime.inputs import RooflineInputs
from sim.steptime.options import Roofline
from sim.steptime.roofline import RooflineStepTime
from sim.yamlio import read

DATA = Path(__file__).parents[2] / "data"


def value(number):
    return Value(value=number, source="test", kind="computed")


@pytest.fixture(scope="session")
def gpu():
    return lambda name: Gpu.model_validate(read(DATA / "gpus" / f"{name}.yaml").data)


@pytest.fixture(scope="session")
def link():
    return lambda name: Link.model_validate(read(DATA / "links" / f"{name}.yaml").data)


@pytest.fixture(scope="session")
def language_model():
    return lambda name: Model.model_validate(read(DATA / "models" / f"{name}.yaml").data)


@pytest.fixture(scope="session")
def coefficients():
    return load_coefficients(DATA / "steptime.yaml")


@pytest.fixture(scope="session")
def engine():
    overheads = {
        "per_layer_s": 50e-6, "per_step_s": 1e-3,
        "per_sequence_s": 40e-6, "per_sequence_in_process_s": 8e-6, "per_request_s": 12e-3,
        "moe_layer_factor": 1.6, "mla_layer_factor": 1.1, "blackwell_layer_factor": 0.65,
        "hopper_layer_factor": 0.9, "recent_host_factor": 0.8,
        "tp_request_factor": 1.6, "moe_request_factor": 1.5, "kv_read_time_factor": 0.55, "moe_gemm_time_factor": 1.2,
    }  # fmt: skip
    return Engine(
        id="test",
        name="test",
        batching="vllm",
        prefill="chunked",
        overheads=Overheads(**{name: value(number) for name, number in overheads.items()}),
    )


FORMATS = {"none": (16, "fp16"), "fp8": (8, "fp8"), "int4": (4.15625, "fp16")}


@pytest.fixture(scope="session")
def build(gpu, link, language_model, coefficients, engine):
    """build(model, gpu, link, format, tp, pp, dp, ep, kv_bytes, spec) -> running roofline."""

    def build_one(
        model="llama3.1-8b", card="a100-80gb-sxm", over="nvlink3-nvswitch", weights="none", *,
        tp=1, pp=1, dp=1, ep=False, kv_bytes=2.0, spec=None,
    ):  # fmt: skip
        bits, compute = FORMATS[weights]
        factors = ("compute_time_factor", "weight_time_factor", "moe_weight_time_factor")
        kernel = Kernel(id="k", name="k", moe_compute_time_factor=value(2.4), **{name: value(1.0) for name in factors})
        inputs = RooflineInputs(
            gpu=gpu(card),
            model=language_model(model),
            quantization=Quantization(
                id=weights, name=weights, weight_dtype=weights, bits_per_weight=value(bits), compute=compute, kernel="k"
            ),
            kernel=kernel,
            engine=engine,
            link=link(over),
            coefficients=coefficients,
            tensor_parallel_size=tp,
            pipeline_parallel_size=pp,
            data_parallel_size=dp,
            enable_expert_parallel=ep,
            kv_bytes_per_element=kv_bytes,
        )
        return RooflineStepTime(spec or Roofline(), inputs)

    return build_one
