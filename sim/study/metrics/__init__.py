"""Metrics of a case, and their values and intervals over the replications of a point.

window_requests requests of the window as arrays
metric          registration of a metric with its column of summary.csv
requests, machines, bill
                the metrics: of requests; of GPUs and replicas; of money, site energy and greenhouse gases
bottleneck      what limits a fleet's throughput
case_metrics    all figures of one replication
columns         the columns of summary.csv
statistics      intervals over replications
averages        how a column is averaged over replications
batch_means     intervals from a single run
overload        test for a queue that grows through the whole window
service_level   verdict on the service level
expected_load   mean prompt and output tokens of a workload's requests
"""
