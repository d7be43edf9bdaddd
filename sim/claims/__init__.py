"""Claims of articles, checked by `gpufleet claims`: figures of every kind, rules, verdicts, tables and a page."""
