"""`python -m holdfast.embedded.probe`: what the embedded stack would choose here, and why.

`--json` prints it for programs; `--needs-wheels` prints nothing and exits 0 when the wheels of `holdfast[embedded]`
are wanted, 1 when the machine has everything. Without it, the exit status is 1 when something is missing.
"""

import json
import sys
from collections.abc import Callable

from holdfast.embedded.choices import KafkaChoice, PostgresChoice, choose_kafka, choose_postgres, needs_wheels
from holdfast.embedded.errors import NothingFound
from holdfast.embedded.server import Say


def _look(choose: Callable[[Say], PostgresChoice | KafkaChoice]) -> dict[str, str]:
    try:
        choice = choose(lambda line: print(line, file=sys.stderr))
    except NothingFound as error:
        return {"kind": "nothing", "why": str(error)}
    return {"kind": choice.kind, "why": choice.why}


def main(arguments: list[str]) -> int:
    if "--needs-wheels" in arguments:
        return 0 if needs_wheels() else 1
    seen = {"postgres": _look(choose_postgres), "kafka": _look(choose_kafka)}
    if "--json" in arguments:
        print(json.dumps(seen))
    else:
        for name, choice in seen.items():
            print(f"{name}: {choice['kind']}: {choice['why']}")
    return 1 if any(choice["kind"] == "nothing" for choice in seen.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
