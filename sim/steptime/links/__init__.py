"""What joins GPUs, and how long they talk over it."""
