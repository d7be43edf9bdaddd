"""Renting GPUs, and buying tokens from an API."""
