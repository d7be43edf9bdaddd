"""One request of a run, step by step."""

from sim.study.fleets.explain.journal import Journal, journal_of
from sim.study.fleets.explain.stretches import Stretch, stretches

__all__ = ["Journal", "Stretch", "journal_of", "stretches"]
