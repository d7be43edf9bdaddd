"""Step-time models: the duration of one engine step of a language model.

A step-time model returns a `Leap` (`first_s`, `growth_s`, `valid_steps`) for a `Batch`. Modules in reading order:

    options         keys of the roofline in a scenario: server options that make steps longer
    affine          user-defined step times: three coefficients, or a registered class
    coefficients    deviation of kernels from the datasheet (data/steptime.yaml, data/attention.yaml)
    collective, pcie_lanes
                    time of all-reduces, sends and exchanges; PCIe lanes that GPUs share
    inputs          inputs of the roofline, and the rates of GPU, links and host derived from them
    gemm, attention, links
                    matrix products, attention, and messages between GPUs in one step
    roofline        the step time of a model on a GPU, including the host's part
    kernels         rates of the kernels, and of kernels measured alone
    drafting        passes of draft models, and LoRA adapters
    calibration     factors measured on a user's own server

To add a step-time model: a class here and its name in `BuiltinStepTime` of `sim/scenario/experiment.py`.
"""
