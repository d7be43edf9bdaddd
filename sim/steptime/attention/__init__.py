"""Attention of one step: heads over a cache, states, indexers, and the sum over a stage's layers."""
