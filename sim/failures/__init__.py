"""What breaks, how often and for how long, and which replicas go down with it."""

from sim.failures.domains import Domain, Law, Layout, domains_of
from sim.failures.spec import COMPONENTS, OF_SERVERS, Component, Failures, Maintenance, Rack, Spares, Spot

__all__ = [
    "COMPONENTS",
    "OF_SERVERS",
    "Component",
    "Domain",
    "Failures",
    "Law",
    "Layout",
    "Maintenance",
    "Rack",
    "Spares",
    "Spot",
    "domains_of",
]
