"""What a data file of each kind may say."""
