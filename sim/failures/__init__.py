"""What breaks, how often and for how long, and which replicas go down with it."""

from sim.failures.domains import FailureDomain, FailureTimes, ServerLayout, domains_of
from sim.failures.spec import (
    COMPONENTS,
    OF_SERVERS,
    ComponentSpec,
    FailureSpec,
    MaintenanceSpec,
    Rack,
    SpotInterruptions,
    StandbyReplicas,
)

__all__ = [
    "COMPONENTS",
    "OF_SERVERS",
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
