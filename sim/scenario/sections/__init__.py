"""Sections of a scenario: what each may say."""
