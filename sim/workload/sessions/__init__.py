"""Conversations and agents: sessions of requests, most of which wait for the answer to an earlier one."""

from sim.workload.sessions.spec import Sessions

__all__ = ["Sessions"]
