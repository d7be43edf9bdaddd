"""What a replica goes through from being switched on to its first request, and how long each part takes."""

from sim.coldstart.spec import ColdStart
from sim.coldstart.stages import Stage, Transfer, at_once

__all__ = ["ColdStart", "Stage", "Transfer", "at_once"]
