"""KV cache of one rank.

blocks          a plain count of blocks, or vLLM's prefix cache with its eviction order
group_pool      groups of layers that share one pool of blocks, block by block
group_cache     groups of layers that share one pool of blocks, most blocks in runs
decode_steps    blocks that decode steps take and free, without visiting each sequence
tiers           blocks in host memory, on SSD or in a store that replicas share
"""
