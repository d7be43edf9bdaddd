"""Computation of an answer and its results folder: tables, pictures and pages.

folder          the results folder: its question, its lock, and the atomic replacement of its files
run             `run` and `price`
questions       a record for each question: capacity, size, sensitivity, breakeven, plan
answer          the steps that all questions share
loaded          a finished answer under other prices and terms, from its stored simulations
jobs            scenarios with a `job` or `jobs`
from_files/     scenarios drafted from logs, metrics, server commands, manifests and model configs
export          a finished answer in the file format of another program
"""
