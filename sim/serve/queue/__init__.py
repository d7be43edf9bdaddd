"""Queue of the workspace's runs, and its routes."""
