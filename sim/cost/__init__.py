"""Money: what a scenario may say about cost, and the bill of what was metered. No physics.

Modules in reading order:

    clock           local time at a site
    metering        meter readings of a window, split into phases
    charge          a component of a bill: quantity, unit price, when it is paid
    prices          amounts in currencies, quotes and price lists
    time_value, finance
                    present values; what a purchase costs per hour of its life
    hardware        servers that the pools of a fleet fill
    buying, rental, token_api
                    the three ways to pay: own hardware, rented hours, tokens of an API
    site, electricity, hosting, carbon
                    where machines stand: tariffs, rent of space, greenhouse gases
    operations      further components of the bill (`component` is their interface): `acquisition`, `replacement`,
                    `upkeep`, `egress`
    cost_plan       all charges of a fleet, with prices in USD
    ledger, cash_flow
                    the bill of a window; the same charges as payments over months
    multi_year      assumptions of a plan over several years

To add a component of the bill: a class in a module here, and its field in `operations`.
"""
