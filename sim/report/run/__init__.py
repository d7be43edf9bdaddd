"""What a run reports: its verdict, its key figures, report.html, its tables and what the terminal prints."""
