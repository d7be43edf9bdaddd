"""Claims of articles, checked by `gpufleet claims`.

files           from the file of a claim to the claim
figures, formulas
                the figures that check a claim, and the formulas that it may name
verdict         from figures to verdicts
report          claims.csv, parts.csv, claims.html, claims.md and a page per claim
"""
