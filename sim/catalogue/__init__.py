"""Sourced data on hardware, models, engines and prices, and the look-up of its entries.

Each entry is a YAML file below data/, read at its first look-up. Modules in reading order:

    value           a number with its source and the kind of statement it is
    gpu, link, server, failure_rate, market
                    accelerators, links, chassis, failure rates, price offers and electricity grids
    model           language models and one-pass networks: weight matrices, parameters, KV cache bytes
    stages          layers of a model's pipeline stages, by the division of each engine
    quantization, kernel, drafter
                    weight formats, matrix kernels, acceptance rates of drafted tokens
    engine          serving engines by version: overheads, memory, limits, offloading
    hf_config/      a model's dimensions from its Hugging Face config.json
    data_folder     the location of data/, and the errors of a look-up
    checkpoint_names  models and weight formats by the names of published checkpoints
    catalog         the look-up by id, alias or path: `load_catalog().gpu("h100-80gb-sxm")`
"""
