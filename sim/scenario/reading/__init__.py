"""From YAML to a Scenario, or to all its mistakes at once."""
