"""What `run` and `price` leave: tables, charts, page, verdict."""
