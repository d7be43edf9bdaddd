"""Minimum memory of a batch: weights, tables, and the inputs and outputs of the widest layer.

The result is a lower bound: other activations, workspaces and the CUDA context come in addition. A batch that exceeds
it cannot run; a batch within it may still not fit.
"""

from dataclasses import dataclass
from typing import Self

from sim.batchtime.roofline import NUMBER_BYTES, Precision
from sim.catalogue.model import OtherModel


@dataclass(frozen=True, slots=True)
class BatchMemory:
    """Minimum memory of one service on one GPU."""

    fixed_bytes: float
    """Size of the tables, and of the weights of every instance [bytes]."""
    request_bytes: float
    """Size of each request in progress [bytes]."""
    instances: int

    @classmethod
    def of(
        cls,
        model: OtherModel,
        precision: Precision,
        instances: int,
        samples_per_request: int = 1,
        resolution: int | None = None,
        table_bytes: float | None = None,
    ) -> Self:
        """Return the memory of *instances* copies of *model*, with numbers of *precision*.

        Parameters
        ----------
        model
            The service; sizes missing in its file count as 0.
        precision
            Storage type of weights, tables and activations.
        instances
            Number of copies of the model on the GPU.
        samples_per_request
            Samples in each request.
        resolution
            Side of an image generator's images [pixels].
        table_bytes
            Size of embedding tables that all instances share, in place of the model's own [bytes].

        """
        width = NUMBER_BYTES[precision]
        weights = 0.0 if model.params is None else model.params.value * width
        tables = 0.0 if model.table_elements is None else model.table_elements.value * width
        widest = 0.0 if model.widest_elements_per_sample is None else model.widest_elements_per_sample.value
        area = 1.0
        if model.generator is not None and resolution is not None:
            area = (resolution / model.generator.resolution) ** 2
        held = tables if table_bytes is None else table_bytes
        return cls(held + instances * weights, samples_per_request * area * widest * width, instances)

    def needed_bytes(self, batch: int) -> float:
        """Return the memory with *batch* requests in progress on every instance [bytes]."""
        return self.fixed_bytes + self.instances * batch * self.request_bytes

    def largest_batch(self, memory_bytes: float) -> int:
        """Return the maximum number of requests per batch in *memory_bytes*; 0 if not even one fits."""
        left = memory_bytes - self.fixed_bytes
        if self.request_bytes == 0:
            return 1 if left >= 0 else 0
        return max(0, int(left // (self.instances * self.request_bytes)))
