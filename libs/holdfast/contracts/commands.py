"""The client's side of commands: the same CloudEvents that `cloudevents_in` reads, made."""

from datetime import datetime
from typing import Any, NamedTuple

import orjson

from holdfast.contracts.limits import check_instance_key, check_payload, check_text
from holdfast.core.errors import Refused
from holdfast.core.ids import InstanceKey, Payload


class CommandMessage(NamedTuple):
    """For `holdfast.commands`: the key is the instance key, so that it goes straight to its home partition."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def start_data(input: Payload, *, version: int | None = None, run_at: datetime | None = None) -> bytes:
    check_payload(input, "input")
    if run_at is not None and run_at.tzinfo is None:
        raise Refused("data_invalid", "run_at has no time zone")
    data: dict[str, Any] = {"input": orjson.Fragment(input)}
    if version is not None:
        data["version"] = version
    if run_at is not None:
        data["run_at"] = run_at
    return orjson.dumps(data)


def cancel_data(*, reason: str = "", compensate: bool = False, force: bool = False) -> bytes:
    return orjson.dumps({"reason": reason, "compensate": compensate, "force": force})


def resume_data(*, reason: str = "") -> bytes:
    return orjson.dumps({"reason": reason})


def encode_command(
    instance: InstanceKey,
    type: str,
    data: bytes,
    *,
    source: str,
    id: str,
    time: datetime | None = None,
    traceparent: str | None = None,
    structured: bool = False,
) -> CommandMessage:
    """`type` is START, CANCEL or RESUME of `cloudevents_in`. Raises Refused for what would be refused anyway."""
    check_instance_key(instance)
    attributes = {
        "specversion": "1.0",
        "id": check_text(id, "id"),
        "source": check_text(source, "source"),
        "type": type,
        "subject": instance,
    }
    if time is not None:
        attributes["time"] = time.isoformat().replace("+00:00", "Z")
    if traceparent is not None:
        attributes["traceparent"] = traceparent
    key = instance.encode()
    if structured:
        body = attributes | {"datacontenttype": "application/json", "data": orjson.Fragment(data)}
        headers = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
        return CommandMessage(key, orjson.dumps(body), headers)
    headers = [(f"ce_{name}", text.encode()) for name, text in attributes.items()]
    headers.append(("content-type", b"application/json"))
    if traceparent is not None:
        headers.append(("traceparent", traceparent.encode()))
    return CommandMessage(key, data, headers)
