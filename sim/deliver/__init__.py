"""A command from its scenario to its results folder: study, then report."""
