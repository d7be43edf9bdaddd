"""A model's dimensions from its Hugging Face `config.json`."""

from sim.catalogue.hf_config.config import ConfigError
from sim.catalogue.hf_config.load import READERS, is_config, model_from_config

__all__ = ["READERS", "ConfigError", "is_config", "model_from_config"]
