"""Drafted tokens under vLLM's rules."""
