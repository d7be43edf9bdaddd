"""Where the machines stand: electricity, cooling, space, carbon."""
