"""Who gets the free GPUs of a cluster. A new policy: its file here and its name in `QueuePolicy`."""

from typing import Annotated

from pydantic import Field

from sim.jobs.policies.backfill import Backfill
from sim.jobs.policies.fifo import Fifo
from sim.jobs.policies.priority import Priority
from sim.jobs.policies.protocol import Decision, Policy, View

QueuePolicy = Annotated[Fifo | Backfill | Priority, Field(discriminator="policy")]

__all__ = ["Backfill", "Decision", "Fifo", "Policy", "Priority", "QueuePolicy", "View"]
