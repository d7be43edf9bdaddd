"""The cheapest fleet that meets the SLO."""
