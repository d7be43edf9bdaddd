"""Which requests are in the next step of a rank: the rules of each engine."""
