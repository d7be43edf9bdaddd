"""Commands about measurements."""
