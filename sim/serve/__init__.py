"""Local workspace in the browser.

http_server     routes of the server; its start and stop
guard           access control: a token, and one address
workspace       the folder of scenarios and answers
refusals, parameters
                refused requests; values read from the address
scenarios, scenario_checks
                scenario files; their checks in separate processes
jobs            the queue of runs
finished_runs, page_data, adjustable_inputs
                finished runs in memory and as data for the page, with the inputs that it can change
cost_gap, exports
                causes of a cost gap; files to download
"""
