"""Counters, gauges and histograms of a server, whoever collected them: pages of /metrics, Prometheus, OpenTelemetry."""
