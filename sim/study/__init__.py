"""Many cases: running, storing and resuming them."""
