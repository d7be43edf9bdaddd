"""Step-time models of one-pass services: from the roofline, or from two given coefficients."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import model_validator

from sim.batchtime.roofline import BatchWork, Device, DeviceSpeed, batch_time_s, work_of
from sim.catalogue.model import OtherModel
from sim.records import Batch, Leap
from sim.spec import Count, NonNegative, Spec


class OnePass(Spec):
    """Batch time from arithmetic, traffic and launches on the pool's GPU, with data/batchtime.yaml's efficiencies."""

    model: Literal["one_pass"] = "one_pass"
    steps: Count | None = None
    """Denoiser steps of an image generator; default: the model's usual number."""
    resolution: Count | None = None
    """Side of an image generator's images [pixels]; default: the model's own."""
    samples_per_request: Count = 1
    """Samples in each request, for example the candidates that a recommender scores for one query."""
    table_bytes: NonNegative | None = None
    """Size of a recommender's embedding tables in the GPU's memory [bytes]; default: the model's own."""


def unit_of(steptime: object, service: OtherModel | None) -> str:
    """Return the noun for the content of one request: a sample of *service*, or a query with several samples."""
    if isinstance(steptime, OnePass) and steptime.samples_per_request > 1:
        return "query"
    return "unit" if service is None else service.sample_unit


@dataclass(frozen=True, slots=True)
class OnePassStepTime:
    """Step-time model of one service on one type of device."""

    spec: OnePass
    model: OtherModel
    device: Device
    speed: DeviceSpeed
    rate: float = 1.0
    """Rate of work under a power cap, relative to no cap."""

    @property
    def window(self) -> int | None:
        """Sliding window of the model; always None."""
        return None

    def work(self, items: int) -> BatchWork:
        """Return the work of a batch of *items* requests."""
        samples = items * self.spec.samples_per_request
        return work_of(self.model, self.device.precision, samples, self.spec.resolution, self.spec.steps)

    def leap(self, batch: Batch) -> Leap:
        """Return the duration of *batch*, whose sequences are the items; its load is the share without launches [1]."""
        work = self.work(batch.decode_seqs)
        whole_s = batch_time_s(work, self.speed)
        return Leap(whole_s / self.rate, load=1 - work.kernels * self.speed.kernel_s / whole_s)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the duration of *batch* by cause [s].

        Launches count as overhead, the rest is divided between compute and memory in proportion to their times.
        """
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
    """Affine batch-time model with two coefficients.

    Notes
    -----
    batch = base_s + per_item_s * items [s].

    The model needs neither a service model nor a GPU; a busy GPU draws its power limit.

    """

    model: Literal["affine_batch"]
    base_s: NonNegative
    """Constant time of a batch [s]."""
    per_item_s: NonNegative
    """Time per request in the batch [s]."""

    @model_validator(mode="after")
    def _time_passes(self) -> Self:
        if self.base_s == self.per_item_s == 0:
            raise ValueError("both coefficients are 0: batches would take no time")
        return self

    @property
    def window(self) -> int | None:
        """Sliding window of the model; always None."""
        return None

    def leap(self, batch: Batch) -> Leap:
        """Return the duration of *batch*, whose sequences are the items."""
        return Leap(self.base_s + self.per_item_s * batch.decode_seqs)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the duration of *batch* by cause [s]: the base is overhead, items are compute."""
        items_s = self.per_item_s * batch.decode_seqs
        return {"compute": items_s, "memory": 0.0, "attention": 0.0, "link": 0.0, "overhead": self.base_s}
