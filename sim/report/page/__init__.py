"""What pages and tables share: layout, numbers, money, the SLO in words."""
