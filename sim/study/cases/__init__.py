"""Cases: which there are, where they are simulated, and how they are kept on disk."""
