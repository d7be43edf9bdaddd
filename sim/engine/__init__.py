"""Engines: what one replica does with its requests, in single steps or in leaps over many equal steps.

Modules in reading order:

    protocol        what the fleet calls on an engine
    sequence        a request inside an engine
    limits          settings of one rank, such as max_num_seqs
    kv/             KV cache: blocks, prefix cache, groups of layers, tiers outside the GPU
    schedulers/     which requests are in the next step, by the rules of each engine
    synchronous, asynchronous
                    replicas that form a step after the last one, or while it runs
    pipeline        pipeline parallelism: several batches in flight
    multi_model     several models on the same GPUs
    dynamic_batching
                    one-pass services: dynamic batches on instances of a GPU
    retimed         recorded steps, repeated with other durations
    lora, metering  adapters on a GPU; running totals of what steps did
"""
