"""KV cache of one rank.

blocks          a plain count of blocks, or vLLM's prefix cache with its eviction order
group_pool      groups of layers that share one pool of blocks, block by block
group_cache     the same groups with most blocks in runs
decode_steps    what decode steps need of the cache, without visiting each sequence
tiers           blocks in host memory, on SSD or in a store that replicas share
"""
