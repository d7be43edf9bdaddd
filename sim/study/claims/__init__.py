"""Claims checked: figures of every kind, rules, verdicts."""
