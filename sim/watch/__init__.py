"""Comparison of a running fleet with its scenario: `gpufleet watch`.

prometheus      range queries of vLLM's, SGLang's and DCGM's series
observed        hourly observations from counters, histograms and gauges
storage         watch.sqlite: hours that were read, and calibrations with the hour from which they apply
predicted       simulations of the scenario at observed loads, and its capacity
drift           observed over predicted by hour, and the alarm
forecast        seasonal forecast of the load with intervals and its backtest
orders          when the load reaches the capacity, what to order and by when
recalibration   factors fitted to the hours of the watched fleet
answer          one round as a record, as sentences and tables, as a page and as metrics
rounds          the rounds of `gpufleet watch`, and its page and metrics by HTTP
"""
