"""What share of its requests a fleet serves within its service level, over the failures of years."""
