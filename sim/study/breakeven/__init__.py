"""Rent, buy or API."""
