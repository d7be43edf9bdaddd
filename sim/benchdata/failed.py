"""Which runs of a load generator say nothing of the load that they tell, as too many of their requests failed."""

MOST_FAILED = 0.1
"""Requests that failed over those that were answered; above, the load was not the one that is told."""


def why_unusable(answered: float, failed: float) -> str:
    """Why a run with so many requests cannot be used; empty if it can."""
    if not answered:
        return "no request was answered"
    return f"{failed:.0f} requests failed, {answered:.0f} were answered" if failed > MOST_FAILED * answered else ""
