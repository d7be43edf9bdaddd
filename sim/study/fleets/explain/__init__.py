"""One request of a run, step by step."""

from sim.study.fleets.explain.journal import Journal, journal_of

__all__ = ["Journal", "journal_of"]
