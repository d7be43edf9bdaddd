"""From a `Scenario` to a plan: every id a number with its source.

case            the plan of a case: its point of the sweep and its fleet there
resolve         the plan of a fleet, and the sourced values that it rests on
bind            a pool with its catalogue entries, coefficients and calibration
scheduler       what the engine sets where the scenario leaves limits open
hardware        machines, links, starts, adapters and failures of replicas
terms           prices and terms of a fleet
resolved        the plans: `CasePlan`, `ServicePlan`, `PoolPlan`
describe        a plan as plain data
"""
