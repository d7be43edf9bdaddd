"""The batch time of a service as an engine asks for it: from the roofline, or given as two coefficients."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import model_validator

from sim.batchtime.roofline import BatchWork, Device, DeviceSpeed, batch_time_s, work_of
from sim.catalogue.model import OtherModel
from sim.records import Batch, Leap
from sim.spec import Count, NonNegative, Spec


class OnePass(Spec):
    """A batch's arithmetic, traffic and launches on the pool's GPU, with the efficiencies of data/batchtime.yaml."""

    model: Literal["one_pass"] = "one_pass"
    steps: Count | None = None
    """Denoiser steps of an image generator; left out: the model's usual number."""
    resolution: Count | None = None
    """Side of the images of an image generator [pixels]; left out: the model's own."""
    samples_per_request: Count = 1
    """Samples that every request brings: the candidates that a recommender scores for one query."""
    table_bytes: NonNegative | None = None
    """Embedding tables of a recommender in the GPU's memory; left out: the model's own."""


def unit_of(steptime: object, service: OtherModel | None) -> str:
    """Noun for what one request asks for: a sample of *service*, or a query where it brings several."""
    if isinstance(steptime, OnePass) and steptime.samples_per_request > 1:
        return "query"
    return "unit" if service is None else service.sample_unit


@dataclass(frozen=True, slots=True)
class OnePassStepTime:
    """One service on one kind of device."""

    spec: OnePass
    model: OtherModel
    device: Device
    speed: DeviceSpeed
    rate: float = 1.0
    """Rate of work under a power cap over that without one."""

    @property
    def window(self) -> int | None:
        """No sliding window."""
        return None

    def work(self, items: int) -> BatchWork:
        """The work of a batch of this number of requests."""
        samples = items * self.spec.samples_per_request
        return work_of(self.model, self.device.precision, samples, self.spec.resolution, self.spec.steps)

    def leap(self, batch: Batch) -> Leap:
        """Duration of *batch*, whose sequences are the items; the GPU's load is the part of it that is no launch."""
        work = self.work(batch.decode_seqs)
        whole_s = batch_time_s(work, self.speed)
        return Leap(whole_s / self.rate, load=1 - work.kernels * self.speed.kernel_s / whole_s)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """The seconds of *batch* by cause: launches are overhead, the rest goes to the larger of compute and memory."""
        work = self.work(batch.decode_seqs)
        whole_s = batch_time_s(work, self.speed) / self.rate
        overhead_s = work.kernels * self.speed.kernel_s / self.rate
        compute_s = work.flops / self.speed.flops
        memory_s = work.weight_bytes / self.speed.weight_bytes_per_s + work.traffic_bytes / self.speed.bytes_per_s
        share = compute_s / (compute_s + memory_s)
        rest_s = whole_s - overhead_s
        return {
            "compute": share * rest_s, "memory": (1 - share) * rest_s, "attention": 0.0, "link": 0.0,
            "overhead": overhead_s,
        }  # fmt: skip


class AffineBatch(Spec):
    """batch = base + per_item * items [s]. It needs no model and no GPU; a GPU at work draws its power limit."""

    model: Literal["affine_batch"]
    base_s: NonNegative
    """Time of a batch however small."""
    per_item_s: NonNegative
    """Per request in the batch."""

    @model_validator(mode="after")
    def _time_passes(self) -> Self:
        if self.base_s == self.per_item_s == 0:
            raise ValueError("both coefficients are 0: batches would take no time")
        return self

    @property
    def window(self) -> int | None:
        """No sliding window."""
        return None

    def leap(self, batch: Batch) -> Leap:
        """Duration of *batch*, whose sequences are the items."""
        return Leap(self.base_s + self.per_item_s * batch.decode_seqs)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """The seconds of *batch* by cause: the base is overhead, items are compute."""
        items_s = self.per_item_s * batch.decode_seqs
        return {"compute": items_s, "memory": 0.0, "attention": 0.0, "link": 0.0, "overhead": self.base_s}
