"""Engines: what a replica does with its requests, step by step or in leaps."""
