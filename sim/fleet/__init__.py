"""The cluster on SimPy's clock: the only place that knows simpy."""
