"""What fleets answer: runs, capacity, size, sensitivity, futures, the difference of two runs."""
