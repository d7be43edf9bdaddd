"""`python -m sim` is `gpufleet`."""

from sim.cli import main

if __name__ == "__main__":
    main()
