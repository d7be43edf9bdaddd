"""KV blocks."""
