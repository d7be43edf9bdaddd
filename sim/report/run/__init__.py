"""The report of a run.

verdict         the answer in sentences, and what qualifies it
key_figures     figures of every point, and differences of fleets
tables          CSV and Parquet files
year, timeline  the year under a load profile; charts over time
page_tables     tables and bars of report.html
report          everything that the folder of a run holds
terminal, json_document
                the same for the terminal and as JSON
"""
