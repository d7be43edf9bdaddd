"""What a pool's scheduler has beside its plain limits: switches, drafts, places for states."""
