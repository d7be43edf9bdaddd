"""Interruptions of the event loop, which hold up signals and other threads where it is compiled."""

EVENTS_BETWEEN = 64
"""Events after which the event loop calls `allow_interrupts`."""


def allow_interrupts() -> None:
    """Let signals and other threads act: the interpreter does that at the start of a function that is not compiled."""
