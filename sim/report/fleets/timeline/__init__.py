"""The picture of a run over time, where replicas are switched or break down."""
