"""Charts of pages: the descriptions that curves.png is drawn from, as Vega-Lite specifications."""
