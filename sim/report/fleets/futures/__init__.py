"""What Monte Carlo draws add to a run's report."""
