"""Search for the cheapest fleet that meets the service level.

search_space    the candidates: kinds of replicas, hosts, spares, ways to pay
bounds          what a replica can serve and a fleet costs at least, without a simulation
trials          simulations of candidates
mixed_fleets    fleets of several kinds: an integer program proposes, simulations test
candidates      what is known of each candidate, and the answer
search          the search itself
"""
