"""Reports: sentences, tables, charts and pages that present the answers of commands.

words/          numbers, money, units and service levels in words
sources, assumptions
                notes and sources of plans; how fleets are built, and the assumptions of an answer
charts/, page/  charts as data and as Vega-Lite; pages from templates
run/            the report of a run: verdict, key figures, tables, report.html
capacity, size, breakeven, plan, sensitivity
                the report of the command of the same name; beside them `capacity_charts`, `sensitivity_charts`,
                    `plan_charts`, `plan_tables` and `size_candidates`
monte_carlo     draws of uncertain inputs (`monte_carlo_charts`)
prediction_accuracy
                marks of points whose predictions are backed by measurements
check, check_summary, catalogue, explanation, diff
                output of these commands
json_document, export/
                answers as JSON, as a workbook and as billing rows
terminal_table, progress
                tables that fit the terminal; progress on stderr
"""
