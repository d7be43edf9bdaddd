"""Failures of components: rates, repair times, and the replicas that each failure takes down."""

from sim.failures.domains import FailureDomain, FailureTimes, ServerLayout, domains_of
from sim.failures.spec import (
    COMPONENTS,
    SERVER_COMPONENTS,
    ComponentSpec,
    FailureSpec,
    MaintenanceSpec,
    Rack,
    SpotInterruptions,
    StandbyReplicas,
)

__all__ = [
    "COMPONENTS",
    "SERVER_COMPONENTS",
    "ComponentSpec",
    "FailureDomain",
    "FailureSpec",
    "FailureTimes",
    "MaintenanceSpec",
    "Rack",
    "ServerLayout",
    "SpotInterruptions",
    "StandbyReplicas",
    "domains_of",
]
