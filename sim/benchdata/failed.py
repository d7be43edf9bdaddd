"""Which runs of a load generator cannot stand for a load that is simulated."""

NO_TRACE = "its requests came at the times of a trace, which is not simulated"
MOST_FAILED = 0.1
"""Failed requests over answered ones; above it the load was not the one that the file states."""


def why_unusable(answered: float, failed: float) -> str:
    """Why a run with these numbers of requests cannot be used; empty if it can."""
    if not answered:
        return "no request was answered"
    return f"{failed:.0f} requests failed, {answered:.0f} were answered" if failed > MOST_FAILED * answered else ""
