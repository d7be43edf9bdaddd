"""Scenario files: read, checked, described, kept."""
