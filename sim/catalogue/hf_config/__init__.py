"""A model's dimensions from its Hugging Face `config.json`."""
