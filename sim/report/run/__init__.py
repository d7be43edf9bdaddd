"""The report of a run.

verdict         the answer in sentences, and what qualifies it
key_figures     figures of every point, and differences of fleets
tables          CSV and Parquet files
year, timeline  the year under a load profile; charts over time
page_tables     tables and bars of report.html
report          all files in the folder of a run
terminal        tables for the terminal
json_document   the answer as JSON
"""
