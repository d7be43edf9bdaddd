"""Whether a model fits on its GPUs, and how much KV cache is left."""
