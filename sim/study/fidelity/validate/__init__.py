"""Benchmark results predicted row by row."""
