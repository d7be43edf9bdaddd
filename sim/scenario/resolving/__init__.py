"""Resolution of a `Scenario` to plans: every id is replaced by numbers with their sources."""
