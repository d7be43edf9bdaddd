"""Metrics of a case, and what replications say about them.

cohort          requests of the window as arrays
metric          registration of a metric with its column of summary.csv
requests, machines, bill
                the metrics: of requests; of GPUs and replicas; of money, site energy and greenhouse gases
bottleneck      what keeps a fleet from serving more
case_metrics    all figures of one replication
columns         the columns of summary.csv
statistics      intervals over replications
averages, batch_means
                how a column comes from replications; intervals from a single run
overload        whether the queue grows through the whole window
service_level   whether the service level is met
expected_load   what requests bring in the mean
"""
