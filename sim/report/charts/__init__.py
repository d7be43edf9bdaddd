"""Charts: plain data first, then Vega-Lite for pages and pictures.

panels          curves, limits, spans and panels; colours, markers and dashes of fleets
sweep_panels    charts of a run
tornado, capacity_steps, vega_bars
                tornado charts, capacity against demand, horizontal bars
layout          ranges of axes, round numbers, and labels where there is room
vega_lite       a chart as a Vega-Lite specification
picture, chart  several charts under a heading and a legend, as one picture; its files
fonts           fonts of pictures
"""
