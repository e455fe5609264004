"""`python -m holdfast_coordinator`, the same as `holdfast coordinator`."""

import sys

from holdfast_coordinator.service import run

if __name__ == "__main__":
    sys.exit(run())
