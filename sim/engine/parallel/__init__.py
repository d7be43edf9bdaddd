"""Ranks of one replica that step together or in turn."""
