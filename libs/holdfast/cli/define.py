"""`holdfast define`: validate definitions whole, store them, and see that their queues have topics."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli import connect, setup
from holdfast.cli.exits import ExitCode
from holdfast.cli.output import JsonOption, complain, plain, say, write_json
from holdfast.contracts.definitions import DefinitionInvalid, Problem, parse_definition
from holdfast.contracts.topics import partitions_default
from holdfast.core.definition import Definition
from holdfast.core.errors import Refused
from holdfast.log.kafka_config import KafkaConfig
from holdfast.store.pool import open_database
from holdfast.store.postgres_coordinator import PostgresCoordinatorStore
from holdfast.store.postgres_definitions import PostgresDefinitionStore
from holdfast.store.rows import StoredDefinition

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Defined:
    name: str
    version: int
    stored: bool  # False: exactly this was stored before
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    defined: tuple[Defined, ...]
    topics_made: tuple[str, ...]
    topics_missing: tuple[str, ...]


class FilesInvalid(Refused):
    """At least one file is no definition; nothing was stored of any."""

    def __init__(self, problems: dict[Path, list[Problem]]) -> None:
        told = [f"{path}: {problem}" for path, found in problems.items() for problem in found]
        super().__init__("definition_invalid", "\n".join(told))
        self.problems = problems


@app.command("define")
def define(
    files: Annotated[list[Path], typer.Argument(help="YAML or JSON, one definition per file.")],
    create_topics: Annotated[
        bool, typer.Option("--create-topics/--no-create-topics", help="Make the topics of new queues, or only say so.")
    ] = True,
    replication: Annotated[int, typer.Option(min=1, help="The replication factor of topics made now.")] = 1,
    check: Annotated[bool, typer.Option("--check", help="Only validate; needs neither Kafka nor Postgres.")] = False,
    json: JsonOption = False,
) -> None:
    """Validate workflow definitions and store them; all problems of all files are listed, each with its path.

    A stored version never changes: the same content again is "unchanged", other content is refused until it has the
    next version number. Workflows that run stay on their version.

    [bold]Examples[/bold]

      holdfast define examples/orders/order-fulfillment.yaml

      holdfast define --check flows/*.yaml
    """
    try:
        parsed = parse(files)
    except FilesInvalid as invalid:
        _report_invalid(invalid, json)
        raise typer.Exit(int(ExitCode.REFUSED)) from None
    if check:
        names = [_name(definition) for _, definition in parsed]
        if json:
            write_json({"valid": names})
        else:
            say("\n".join(f"{plain(name)} is valid" for name in names))
        return

    async def work() -> Result:
        dsn = connect.postgres_dsn()
        return await store(files, connect.kafka_config(), dsn, create_topics=create_topics, replication=replication)

    _report(connect.run(work()), json)


def parse(files: Sequence[Path]) -> list[tuple[dict[str, Any], Definition]]:
    parsed, problems = [], {}
    for path in files:
        try:
            parsed.append(parse_definition(path.read_bytes()))
        except DefinitionInvalid as invalid:
            problems[path] = invalid.problems
        except OSError as problem:
            problems[path] = [Problem("", f"cannot be read: {problem.strerror}")]
    if problems:
        raise FilesInvalid(problems)
    return parsed


async def store(
    files: Sequence[Path], kafka: str | KafkaConfig, postgres: str, *, create_topics: bool = True, replication: int = 1
) -> Result:
    """Store definitions, and make the topics of their queues. FilesInvalid before anything is stored."""
    parsed = parse(files)
    config = KafkaConfig(kafka) if isinstance(kafka, str) else kafka
    database = await open_database(postgres, "cli", connections_max=1)
    try:
        partitions = await PostgresCoordinatorStore(database).partition_count() or partitions_default
        queues = sorted({queue for _, definition in parsed for queue in _queues(definition)})
        # Topics first: a workflow that starts the moment it is defined finds its queues.
        made: set[str] = set()
        if create_topics:
            made = await setup.create_queue_topics(config, partitions, queues, replication)
        missing = [] if create_topics else await setup.missing_queue_topics(config, partitions, queues)
        definitions, now = PostgresDefinitionStore(database), await PostgresCoordinatorStore(database).now()
        defined = []
        for body, definition in parsed:
            row = StoredDefinition(definition.namespace, definition.name, definition.version, body, now)
            stored = await definitions.define(row)
            defined.append(Defined(_name(definition), definition.version, stored, _queues(definition)))
    finally:
        await database.close()
    return Result(tuple(defined), tuple(sorted(made)), tuple(missing))


def _name(definition: Definition) -> str:
    return f"{definition.namespace}/{definition.name}"


def _queues(definition: Definition) -> tuple[str, ...]:
    return tuple(sorted({task.queue for task in definition.tasks.values() if task.queue}))


def _report_invalid(invalid: FilesInvalid, json: bool) -> None:
    if json:
        listed = {
            str(path): [{"path": one.path, "problem": one.message} for one in found]
            for path, found in invalid.problems.items()
        }
        write_json({"problems": listed})
        return
    count = sum(len(found) for found in invalid.problems.values())
    complain(ExitCode.REFUSED, f"{count} problems; nothing was stored")
    for path, found in invalid.problems.items():
        say(f"[bold]{plain(path)}[/bold]")
        for one in found:
            say(f"  [red]{plain(one.path or '(the whole)')}[/red] {plain(one.message)}")


def _report(result: Result, json: bool) -> None:
    if json:
        write_json(result)
        return
    for one in result.defined:
        say(f"{plain(one.name)} version {one.version}: {'stored' if one.stored else 'unchanged'}")
    for topic in result.topics_made:
        say(f"made {plain(topic)}")
    for topic in result.topics_missing:
        say(f"[yellow]{plain(topic)} does not exist[/yellow]: make it, or run `holdfast topics create`")
