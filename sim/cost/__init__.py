"""Money: what a scenario may say about cost, and the ledger: metered quantities times sourced prices.

Open `ledger.py` first, then `cost_plan.py`. A component of the bill is a class in a file of its own or beside its
like, and a field in `operations.py`.
"""
