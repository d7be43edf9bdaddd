"""From a Scenario to sourced values."""
