"""Scenarios that ask for work to be done instead of requests to be answered: a training job on each fleet."""
