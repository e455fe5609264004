"""`python -m holdfast.embedded.sweep FOLDER`: remove a folder of stacks, and end what killed runs left running in it.

Refuses while a stack in it is in use.
"""

import fcntl
import sys
from pathlib import Path

from holdfast.embedded import leftovers


def main(top: Path) -> int:
    stacks = [path.parent for path in [top / "lock", *top.glob("*/lock")] if path.is_file()]
    for folder in stacks:
        with (folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"{folder} is in use; stop that process first", file=sys.stderr)
                return 1
            for name in leftovers.sweep(folder):
                print(f"ended the leftover {name} of a killed run")
            leftovers.remove(folder)
    leftovers.remove(top)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
