"""What happened to a fleet in the course of a run: load, replicas by state, latency, queue, cost."""
