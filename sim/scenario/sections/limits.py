"""How large a run may become."""

from typing import Annotated

from pydantic import Field

from sim.scenario.sections.section import Section
from sim.spec import Count, Spec


class Limits(Spec):
    """What is larger is refused before anything runs, so that a mistyped exponent is found at once. With more memory or
    more patience any of these may be raised.
    """

    points: Annotated[Count, Field(le=1_000_000)] = 10_000
    """Points of the sweep; at most a million, each of which takes some 10 ms to check."""
    cases: Count = 100_000
    """Fleets x sweep points x replications (with a precision, its max_replications)."""
    requests: Count = 20_000_000
    """Requests in one case: about 15 GB of memory."""
    replicas: Count = 100_000
    """Replicas of one fleet, each data-parallel rank counted: about 0.5 GB and 10 s for each case."""
    usage_rows: Count = 10_000_000
    """Replicas x meter intervals in one case, and what failures and interruptions add."""
    readings: Count = 100_000_000
    """Replicas x scrapes of the autoscalers in one case, and their decisions."""
    months: Count = 1200
    """How far `plan` and `breakeven` look ahead."""


LIMITS: Section[Limits] = Section(effort=True)
