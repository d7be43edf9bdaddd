"""Training jobs: step time, memory, failures, money.

job, network    a job and how it is spread over GPUs; what a network costs per token or sample
figures         how far training is from the datasheet (data/training)
steptime, memory
                seconds of one optimizer step by cause; memory of the fullest GPU
schema, bind, checks
                what a scenario with a `job` may say, bound to the catalogue and checked
run, plan, outcome
                failures and checkpoints; a job resolved; its bill
report          verdict, tables and charts
"""
