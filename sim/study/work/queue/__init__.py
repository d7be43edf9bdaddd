"""A queue of jobs on every cluster at every point of the sweep: waiting, utilisation, energy, money."""
