"""Cases: a case is a fleet at one point of the sweep in one replication.

run             `run_case`: the plan is resolved, the fleet is run, its ledger is computed
result          the result: plan, log and ledger, as a whole and by service
service_weights shares of the services in the pools that they share
"""
