"""Dynamic batches of requests that are answered in one pass, as Triton and TorchServe form them."""

from typing import Literal, Self

from sim.spec import Count, NonNegative, Spec


class Dynamic(Spec):
    """A free instance takes up to `max_batch_size` waiting requests, at once or when the oldest has waited long enough.

    As Triton's dynamic batcher without preferred sizes: a full batch starts as soon as an instance is free; a smaller
    one starts when its oldest request has waited `max_queue_delay_s`. See
    `sim/engine/parallel/dynamic.py`.
    """

    policy: Literal["dynamic"]
    max_batch_size: Count
    """Most requests in one batch."""
    max_queue_delay_s: NonNegative = 0.0
    """How long a request may wait for others while an instance is free; 0: a free instance takes whatever waits."""
    instances: Count = 1
    """Copies of the model that share a replica's GPU, as `sharing` says."""
    sharing: Literal["time_slicing", "mps"] = "time_slicing"
    """time_slicing: instances at work at once get equal shares of the GPU's time. mps: their kernels run side by side;
    an instance is slowed only where all together ask for more than the whole GPU."""

    @property
    def max_num_seqs(self) -> int:
        """Requests that can be at work together."""
        return self.max_batch_size * self.instances

    @property
    def max_num_batched_tokens(self) -> None:
        """There are no tokens."""
        return None

    @property
    def step_tokens(self) -> None:
        """There are no tokens."""
        return None

    @property
    def gpu_memory_utilization(self) -> None:
        """There is no KV cache."""
        return None

    @property
    def max_model_len(self) -> None:
        """No request is too long."""
        return None

    @property
    def block_size(self) -> int:
        """There is no KV cache."""
        return 1

    @property
    def num_gpu_blocks(self) -> None:
        """There is no KV cache."""
        return None

    def sized(self, blocks: int, longest: int) -> Self:
        """Unchanged: there is no KV cache to size."""
        return self
