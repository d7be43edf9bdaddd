"""A training job on every fleet at every point of its sweep: time, energy, money."""
