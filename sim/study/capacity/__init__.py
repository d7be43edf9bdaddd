"""The highest load within the SLO."""
