"""Reading of scenarios: from a YAML file to a `Scenario`, or to all validation issues at once.

load            entry point: read, override, check, build
layers          raw data before it is typed, and places in it
errors          validation issues in plain words: place, mistake, and the key or value that was probably meant
distribution    distributions that may replace a number
uncertain       extraction of distributions from the raw data
shipped         scenarios that come with the program
"""
