"""Entry point of `python -m sim`, which is the command `gpufleet`."""

from sim.cli import main

if __name__ == "__main__":
    main()
