"""From a YAML file to a `Scenario`, or to all its mistakes at once.

load            the entry: read, override, check, build
layers          raw data before it has types, and places in it
errors          mistakes in plain words: where, what is wrong, what was probably meant
distribution    distributions that may stand in place of a number
uncertain       such distributions taken out of the raw data
shipped         scenarios that come with the program
"""
