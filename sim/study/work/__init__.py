"""Jobs and queues of jobs."""
