"""Duration of one engine step of a language model.

A step-time model answers for a batch with `(first_s, growth_s, valid_steps)`. Modules in reading order:

    options         keys of the roofline in a scenario: what the server does that makes steps longer
    affine          step times that a user gives: three coefficients, or a registered class
    coefficients    how far kernels are from the datasheet (data/steptime.yaml, data/attention.yaml)
    collective, pcie_lanes
                    time of all-reduces, sends and exchanges; PCIe lanes that GPUs share
    inputs          all that the roofline is built from, and the rates of GPU, links and host
    gemm, attention, links
                    matrix products, attention, and messages between GPUs of one step
    roofline        the step time of a model on a GPU, with the host's part
    drafting        passes of draft models, and LoRA adapters
    calibration     factors measured on a user's own server

To add a step-time model: a class here and its name in `BuiltinStepTime` of `sim/scenario/experiment.py`.
"""
