"""Python API of gpufleet (`import sim`): the commands as functions, their answers as frames and figures."""
