"""Batch jobs in a cluster's queue; how scenarios with work to do, `job` or `jobs`, are read and answered."""
