"""The machines of a pool, their slices, and the wires between their GPUs."""
