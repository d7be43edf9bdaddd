"""What the terminal shows while a command runs and when it has ended."""
