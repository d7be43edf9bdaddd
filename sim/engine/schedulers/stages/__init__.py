"""Who is in which batch, where several are in flight: the stages of a pipeline."""
