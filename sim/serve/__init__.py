"""The local workspace in the browser.

http_server     every address with what answers there; start and stop of the server
guard           access control: a token, and one address
workspace       the folder of scenarios and answers
refusals, parameters
                refused requests; values read from the address
scenarios, scenario_checks
                scenario files, read and checked in a process apart
jobs            the queue of runs
finished_runs, page_data, knobs
                finished runs in memory, as the page gets them, with the inputs that it can change
cost_gap, exports
                why one fleet costs more than another; files to download
"""
