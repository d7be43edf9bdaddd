"""`gpufleet explain`: one request as text and as a trace."""
