"""Scenario files: their keys, how they are read and checked, and the plans that they resolve to.

Modules in reading order:

    experiment      keys of every scenario: workload, services, fleets, pools, terms
    replica_schedule
                    numbers of replicas by the time of day
    slo             the service level objective
    sections/       optional sections that ask about an experiment, with their checks
    claim           the section `claim`
    schema          `Scenario`: the experiment and all sections
    sweep           cases: fleets x sweep points x replications
    year            hours of a year under a load profile
    reading/        from YAML to a `Scenario`, or to all validation issues with their lines
    checks/         contradictions and mistakes that the types cannot express
    resolving/      from a `Scenario` to a plan in which every id is a sourced value
    template        files that `gpufleet init` writes: an example scenario, and the JSON schema for editors
"""
