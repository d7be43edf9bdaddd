"""Search for the cheapest fleet that meets the service level.

search_space    the candidates: kinds of replicas, hosts, spares, purchase options
bounds          upper bound of a replica's throughput and lower bound of a fleet's cost, without a simulation
trials          simulations of candidates
mixed_fleets    fleets of several kinds: an integer program proposes, simulations test
candidates      rows of the result, one per candidate, and the answer
search          best-first search
search_state    progress of a search
"""
