"""Services that share replicas: where their requests come from, where they may go, and what each had of it."""
