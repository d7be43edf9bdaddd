"""What `gpufleet claims` writes: tables, a page, a chapter of the documentation."""
