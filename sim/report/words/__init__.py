"""Wording of numbers, money and service levels in reports.

text            numbers, places and names
units           nouns for the work of one-pass services
money           amounts in the currency of the scenario
service_level   load, routing and service level
precision       warm-up, and whether the wanted precision was reached
"""
