"""Numbers, money, the SLO and notes in words."""
