"""Export of a finished answer to the formats of other programs.

stored_answer   an answer read back from its folder
spreadsheet     a workbook under construction
workbook        an answer as a workbook with formulas
focus           the bill of a run as FOCUS 1.2 rows
"""
