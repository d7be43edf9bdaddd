"""Scenarios that ask how a queue of jobs fares on a cluster."""
