"""Replicas that break down while the fleet runs, and what becomes of their requests."""
