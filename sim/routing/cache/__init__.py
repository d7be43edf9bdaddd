"""Policies that look at what replicas have in their KV caches, and at how much."""
