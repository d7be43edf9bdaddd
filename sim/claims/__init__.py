"""Published claims about GPU costs and performance, checked by `gpufleet claims`.

files           reading of claim files
figures, formulas
                computation of the figures in a claim, and the formulas that claims may use
verdict         verdicts from figures
report          claims.csv, parts.csv, claims.html, claims.md and a page per claim
"""
