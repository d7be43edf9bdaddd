"""A queue of jobs on a cluster: which job runs when, by which policy, and job traces."""
