"""The parts of a batch that few inputs have: commands, rejected reports, parked inputs."""

from uuid import UUID

import msgspec

from holdfast.store.pack_tables import Pack
from holdfast.store.rows import CommandKey, CommandRow, Commit, ParkedInput

_headers = msgspec.msgpack.Encoder()


def is_repeat(row: CommandRow) -> bool:
    """Counted with what is on record, if anything is, instead of clashing with it."""
    return row.outcome == "duplicate" or row.reason == "id_reused"


def pack_commands(batch: Pack, commands: list[CommandRow]) -> None:
    repeats: dict[CommandKey, tuple[CommandRow, int]] = {}
    for row in commands:
        if is_repeat(row):
            first, count = repeats.get(row.key, (row, 0))
            repeats[row.key] = (first, count + 1)
        else:
            batch.commands += _command(batch, row)
    for row, count in repeats.values():
        batch.repeats += (*_command(batch, row), count)


def _command(batch: Pack, row: CommandRow) -> tuple[int, ...]:
    text = batch.texts
    return (
        batch.ids[row.key.instance_id],
        text[row.key.source],
        text[row.key.id],
        text[row.instance],
        text[row.type],
        batch.blob(row.digest),
        text[row.outcome],
        text[row.reason],
        batch.times[row.received_at],
    )


def pack_parking(batch: Pack, commit: Commit) -> None:
    """Reports that are only counted, and everything about instances whose inputs are parked."""
    text, time, out = batch.texts, batch.times, batch.parking
    counts: dict[tuple[UUID, str, int], int] = {}
    for rejection in commit.rejections:
        key = (rejection.instance_id, rejection.path, rejection.fence)
        counts[key] = counts.get(key, 0) + rejection.count
    for (instance, path, fence), count in counts.items():
        out += (batch.ids[instance], text[path], fence, count)
    ends = [len(out)]
    places: dict[UUID, int] = {}
    for parked in commit.parked:
        places[parked.instance_id] = places.get(parked.instance_id, 0) + 1
        out += _parked(batch, parked, places[parked.instance_id])
    ends.append(len(out))
    for instance, number in commit.unparked:
        out += (batch.ids[instance], number)
    ends.append(len(out))
    for tried in commit.parked_tries:
        out += (
            batch.ids[tried.instance_id],
            tried.tries,
            time[tried.next_try_at],
            text[printable(tried.error)],
            int(tried.quarantine),
        )
    ends.append(len(out))
    batch.rare = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _parked(batch: Pack, parked: ParkedInput, place: int) -> tuple[int, ...]:
    return (
        batch.ids[parked.instance_id],
        parked.partition,
        batch.texts[parked.instance],
        batch.texts[parked.topic],
        parked.offset,
        batch.blob(parked.key),
        batch.blob(parked.value),
        batch.blob(_headers.encode(parked.headers)),
        batch.texts[printable(parked.error)],
        batch.times[parked.parked_at],
        place,
    )


def printable(text: str) -> str:
    """Parking must never fail on its own data: an error's text may quote the very bytes that Postgres refused."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
