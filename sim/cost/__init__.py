"""Costs: the cost sections of a scenario, and the bill of metered quantities.

Modules in reading order:

    clock           local time at a site
    metering        meter readings of a window, split into phases
    charge          a component of a bill: quantity, unit price, time of payment
    prices          amounts in currencies, quotes and price lists
    time_value, finance, financing, income_tax, books
                    present values; cost per hour of life of a purchase
    hardware        servers that the pools of a fleet fill
    buying, rental, token_api
                    the three ways to pay: own hardware, rented hours, tokens of an API
    site, electricity, hosting, carbon
                    the site of the machines: tariffs, rent of space, greenhouse gases
    operations      further components of the bill (`component` is their interface): `acquisition`, `replacement`,
                    `upkeep`, `egress`
    cost_plan       all charges of a fleet, with prices in USD
    ledger, cash_flow
                    the bill of a window; the same charges as payments over months
    multi_year      assumptions of a plan over several years

To add a component of the bill: a class in a module here, and its field in `operations`.
"""
