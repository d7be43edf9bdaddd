"""Replicas that are switched while the fleet runs: who wants how many, and how they start and stop."""
