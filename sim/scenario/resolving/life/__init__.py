"""What happens to replicas while a fleet runs: how they start, what fails."""
