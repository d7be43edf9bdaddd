"""What a run leaves behind for people: tables, charts, a report and the verdict."""
