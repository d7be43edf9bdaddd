"""Dimensions of a model from its Hugging Face `config.json`.

config          the raw keys, with errors that name what is missing
full_attention  architectures whose layers all attend to the whole context, or to windows of it
mixed_attention architectures that mix attention with states or with other kinds of attention
load            the reader chosen by `model_type`, and the number formats of the checkpoint
"""
