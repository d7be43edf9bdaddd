"""What the commands' stories share."""
