"""`shop.worker:worker` -> a Worker, with errors that say which part of that is wrong."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec

from holdfast.core.errors import Refused
from holdfast.worker.worker import Worker


def load_worker(target: str) -> Worker:
    module_name, colon, attribute = target.partition(":")
    if not module_name or not colon or not attribute:
        raise Refused("worker_not_found", f"{target!r} is not package.module:attribute, like shop.worker:worker")
    _require_module(module_name)
    # An error inside the user's module goes out as it is: its traceback is what they need.
    found: object = importlib.import_module(module_name)
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise Refused("worker_not_found", _no_attribute(module_name, attribute)) from None
    if not isinstance(found, Worker):
        raise Refused("worker_not_found", f"{target} is a {type(found).__name__}, not a holdfast.Worker")
    return found


def _require_module(name: str) -> None:
    if name.startswith("."):
        raise Refused(
            "worker_not_found", f"{name!r} is no name of a module: write it from the top, without a dot first"
        )
    try:
        there = find_spec(name) is not None
    except ModuleNotFoundError:  # a package above it is missing
        there = False
    except ValueError as problem:
        raise Refused("worker_not_found", f"{name!r} is no name of a module: {problem}") from None
    if not there:
        where = ", ".join(repr(path or ".") for path in sys.path[:3])
        raise Refused("worker_not_found", f"there is no module {name!r} (looked in {where}, …): run this where it is")


def _no_attribute(module_name: str, attribute: str) -> str:
    module = sys.modules[module_name]
    workers = [name for name, value in vars(module).items() if isinstance(value, Worker)]
    hint = f"; it has {', '.join(workers)}" if workers else ", and no Worker either"
    return f"{module_name} has no {attribute!r}{hint}"
