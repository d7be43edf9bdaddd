"""Metrics of a case, and what replications say about them."""
