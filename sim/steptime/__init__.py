"""How long one engine step takes: the specs that a scenario may name, distinguished by `model`."""
