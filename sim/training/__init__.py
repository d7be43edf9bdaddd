"""How long a training step takes and what it needs of a GPU's memory."""
