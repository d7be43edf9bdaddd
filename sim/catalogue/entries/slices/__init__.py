"""GPUs cut into slices."""
