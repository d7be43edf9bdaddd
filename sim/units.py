"""Unit conversions, and the unit suffixes of names.

_s seconds, _bytes, _bytes_per_s, _flops (a rate: FLOP per second), _w watts, _j joules, _kwh, _usd, _rps requests per
second. Inside the program everything is in these base units; reports convert.
"""

HOURS_PER_YEAR = 8760.0
HOURS_PER_MONTH = 730.0
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0
HOURS_PER_DAY = 24
HOURS_PER_WEEK = 168
JOULES_PER_KWH = 3.6e6
BITS_PER_BYTE = 8
GB = 1e9
GIB = 2**30
NANO_PER_USD = 1_000_000_000
