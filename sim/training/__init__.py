"""Training jobs: time of an optimizer step, memory, failures and checkpoints, and cost.

job, network    a job's optimizer step and its spread over GPUs; a network's cost per token or sample
figures         fitted factors between datasheet rates and training (data/training)
steptime, memory
                seconds of one optimizer step by cause; memory of the fullest GPU
schema, bind, checks
                the scenario section `job`, its binding to the catalogue, and its validation
run, plan, outcome
                failures and checkpoints; the resolved job; meter readings and cost
report          verdict, tables and charts
"""
