"""What a batch of a service asks of the hardware."""

from dataclasses import dataclass

from sim.batchtime.device import NUMBER_BYTES, Precision
from sim.catalogue.entries.model import ImageGenerator, OtherModel


@dataclass(frozen=True, slots=True)
class Work:
    """One batch, from its first kernel to its last."""

    flops: float
    weight_bytes: float
    """Weights read, once a pass."""
    traffic_bytes: float
    """Activations and table rows read and written."""
    kernels: float
    """Launches one after the other, whatever the batch."""


def work_of(
    model: OtherModel,
    precision: Precision,
    samples: float,
    resolution: int | None = None,
    steps: int | None = None,
) -> Work:
    """The work of *samples* samples of *model* in one batch.

    *resolution* [pixels of one side] and *steps* count for image generators alone; left out, those of the model's file.
    Convolutions and cross attention grow with the pixels, self-attention with their square. Raises KeyError with the
    field that the model's file lacks.
    """
    flops, traffic, kernels = (_known(model, name) for name in NEEDED)
    weights = 0.0 if model.params is None else model.params.value
    width = NUMBER_BYTES[precision]
    passes = 1.0 if model.passes_per_sample is None else model.passes_per_sample.value
    if model.generator is None:
        return Work(
            flops=samples * passes * flops,
            weight_bytes=passes * weights * width,
            traffic_bytes=samples * passes * traffic * width,
            kernels=passes * kernels,
        )
    generator = model.generator
    area = ((resolution or generator.resolution) / generator.resolution) ** 2
    steps = steps or generator.steps
    calls = steps * generator.calls_per_step
    return Work(
        flops=samples * (calls * _call_flops(flops, generator, area) + area * generator.decoder_flops.value),
        weight_bytes=steps * weights * width,
        traffic_bytes=samples * area * (calls * traffic + generator.decoder_traffic_elements.value) * width,
        kernels=steps * kernels,
    )


NEEDED = ("flops_per_sample", "traffic_elements_per_sample", "kernels")
"""Fields of a model's file without which its batch time cannot be computed."""


def missing_work(model: OtherModel) -> tuple[str, ...]:
    """Those of NEEDED that *model* lacks."""
    return tuple(name for name in NEEDED if getattr(model, name) is None)


def _known(model: OtherModel, name: str) -> float:
    value = getattr(model, name)
    if value is None:
        raise KeyError(name)
    return float(value.value)


def _call_flops(flops: float, generator: ImageGenerator, area: float) -> float:
    attention = generator.attention_flops_per_call.value
    return area * (flops - attention) + area**2 * attention
