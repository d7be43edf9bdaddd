"""Price lists as clouds publish them, in catalogue entries of the user: `gpufleet prices`.

row          price of one GPU-hour from a list
published    readers of lists of AWS, Azure, Google, Lambda, RunPod and own CSV files
folder       catalogue entries of imported prices, written and read
comparison   differences between two lists, and old prices
successors   the newest offer for each price of a finished run
repricing    bills of all finished runs at these offers
"""
