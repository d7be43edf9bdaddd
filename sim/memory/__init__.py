"""GPU and host memory of a replica: whether a model fits, and the space left for the KV cache.

weights         bytes of weights on each GPU: parallel layouts, pipeline stages, offloading to host memory
kv_cache        layout of the KV cache: groups of layers, compressed attention, recurrent states
lora            sizes of LoRA adapters and of the slots that hold them
fit             memory of the fullest GPU, and other GPUs or slices where the model would fit
"""
