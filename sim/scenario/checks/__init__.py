"""Checks of a scenario beyond its schema: contradictions, unknown ids, and hardware that cannot do what is asked.

scenario        all checks of a scenario, and unknown ids
pools           settings of a pool that contradict each other or the engine
hardware        limits of the hardware, with alternatives that would fit
services        several services on a fleet, and one-pass services
routing         routers and the pools behind them
limits          runs larger than `limits` allows
"""
