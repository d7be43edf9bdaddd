"""One request of a run, step by step."""

from sim.study.fleets.explain.exchanged import Exchanged, exchanged
from sim.study.fleets.explain.journal import Journal, NoSuchRequest, journal_of
from sim.study.fleets.explain.stretches import Stretch, stretches

__all__ = ["Exchanged", "Journal", "NoSuchRequest", "Stretch", "exchanged", "journal_of", "stretches"]
