"""Runs that the page has asked for."""
