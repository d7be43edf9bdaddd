"""Answers computed from many cases, without text or pictures.

Running and reading cases:

    execution/      cases as jobs: where they run, how results are stored and resumed
    metrics/        figures of a case, columns of summary.csv, intervals, service level
    points          finished cases by fleet and point of the sweep
    comparison, year, tenants, timeline, availability
                    differences of fleets; a year under a load profile; tenants; means over time; failures
    explanation, confidence
                    one request step by step; prediction intervals from measurements

Other prices, without a new simulation:

    rebill, reprice, loaded_runs, diff
                    bills in memory; a run's folder at other prices; runs from disk; two runs
    monte_carlo     draws of uncertain inputs
    discounting, booked_inputs
                    horizon and discount rate of a comparison; adjustable prices and terms

Questions, one module or folder each:

    capacity        highest load within the service level (`load_axis`, `capacity_tolerance`, `at_capacity`)
    size/           cheapest fleet within the service level
    breakeven       rent, buy or API (`breakeven_costs`)
    plan            several years month by month (`plan_units`, `plan_cash`)
    sensitivity     one input at a time; `cost_gap`: why one fleet costs more than another
"""
