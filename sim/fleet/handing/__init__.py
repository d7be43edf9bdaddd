"""Requests whose prompts are computed on one replica and answered on another."""
