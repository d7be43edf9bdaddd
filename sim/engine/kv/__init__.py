"""KV cache of one rank: blocks, prefix cache, groups of layers and tiers below the GPU."""
