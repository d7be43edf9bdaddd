"""A finished answer in the form of other programs: a workbook, billing rows."""
