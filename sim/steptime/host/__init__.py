"""The host's part of a step: weights in its memory, and the kernels that it launches."""
