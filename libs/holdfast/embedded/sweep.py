"""`python -m holdfast.embedded.sweep FOLDER`: end the servers that a killed run left behind."""

import sys
from pathlib import Path

from holdfast.embedded.leftovers import sweep

if __name__ == "__main__":
    for name in sweep(Path(sys.argv[1])):
        print(f"ended the leftover {name} of a killed run")
