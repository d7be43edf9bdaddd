"""Policies of a user's own beside the built-in ones."""

from sim.registry.policies import Registered, Registration, Registry, enter, entered
from sim.registry.version import versions

__all__ = ["Registered", "Registration", "Registry", "enter", "entered", "versions"]
