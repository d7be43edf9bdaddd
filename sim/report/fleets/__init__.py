"""What a reader gets of runs, capacity, size, sensitivity, futures and the difference of two runs."""
