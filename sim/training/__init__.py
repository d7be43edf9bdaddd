"""Training jobs: step time, memory, failures; scenarios with a `job`, their plans, results and reports."""
