"""From a scenario to the folder of its answer: compute, then write tables, pictures and pages.

folder          the results folder: which question it answers, who may write, files that appear together
run             `run` and `price`
questions       a record for each question: capacity, size, sensitivity, breakeven, plan
answer          the steps that all questions share
jobs            scenarios with a `job` or `jobs`
export          a finished answer as a file of another program
"""
