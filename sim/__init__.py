"""gpufleet: which fleet of GPUs for this traffic, how fast will it answer, and what does a million tokens cost?

Reading guide. Start with these three files, in this order:

1. `case.py`: one case on one page: a plan is resolved, a fleet is run, a ledger is drawn up.
2. `scenario/schema.py`: what a scenario file may say; `scenario/plan.py`: what it comes to once ids are sourced values.
3. `records.py`: what flows between the layers.

Then `engine/vllm.py` for how requests are batched, `steptime/roofline.py` for how long a step takes, `cost/ledger.py`
for money. Imports go one way only:

    cli -> report -> study -> case -> fleet -> {engine, scenario}
    scenario -> {workload steptime memory power routing batching cost} -> catalogue
    catalogue -> {spec, records} -> {yamlio, units, rng}
    engine -> records

To extend: a GPU, model or price is a file in data/; a policy is a file in its part (`routing/`, `batching/`,
`steptime/`, `workload/`, `cost/`) and its name in the union of that part's `__init__.py`.

From Python:

    catalog = sim.catalogue.catalog.load_catalog()
    scenario = sim.scenario.reading.load.load("scenarios/4x4090-vs-2xa100.yaml", catalog=catalog)
    for case in sim.scenario.sweep.cases(scenario):
        plan = sim.scenario.resolving.resolve.resolve(scenario, case, catalog)
"""
