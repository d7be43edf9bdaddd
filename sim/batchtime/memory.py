"""The memory that a batch needs at least: weights, tables, and what its widest layer reads and writes.

It is a lower bound: other activations, workspaces and the CUDA context come on top. What it refuses cannot run; what it
lets pass may still not fit.
"""

from dataclasses import dataclass
from typing import Self

from sim.batchtime.roofline import NUMBER_BYTES, Precision
from sim.catalogue.model import OtherModel


@dataclass(frozen=True, slots=True)
class BatchMemory:
    """Bytes of one service on one GPU."""

    fixed_bytes: float
    """Tables, and the weights of every instance."""
    request_bytes: float
    """Of each request that is at work."""
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
        """Of *instances* copies of *model*, all with numbers of *precision*; what its file lacks counts as nothing.

        *resolution* [pixels of one side] is that of an image generator. *table_bytes* takes the place of the model's
        embedding tables, which all instances share.
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
        """With *batch* requests at work on every instance."""
        return self.fixed_bytes + self.instances * batch * self.request_bytes

    def largest_batch(self, memory_bytes: float) -> int:
        """Most requests of a batch in *memory_bytes*; 0 where not even one fits."""
        left = memory_bytes - self.fixed_bytes
        if self.request_bytes == 0:
            return 1 if left >= 0 else 0
        return max(0, int(left // (self.instances * self.request_bytes)))
