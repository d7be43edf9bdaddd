"""Mistakes of a scenario that its types cannot see.

scenario        all checks of a scenario, and unknown ids
pools           settings of a pool that contradict each other or the engine
hardware        whether the hardware can do what is asked
services        several services on a fleet, and one-pass services
routing         routers and the pools behind them
limits          runs larger than `limits` allows
"""
