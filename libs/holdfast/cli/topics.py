"""`holdfast topics create|check`."""

from typing import Annotated

import typer

from holdfast.cli import connect
from holdfast.cli.exits import ExitCode
from holdfast.cli.output import JsonOption, plain, say, write_json

app = typer.Typer(no_args_is_help=True, help="Make or check the Kafka topics.")
group = True


@app.command("create")
def create(
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Of the inbox topics; fixed for ever. Default 8.")
    ] = None,
    replication: Annotated[int, typer.Option(min=1, help="The replication factor of topics made now.")] = 1,
    json: JsonOption = False,
) -> None:
    """Make the topics that are missing, also those of all stored definitions. Safe to run twice.

    [bold]Example[/bold]

      holdfast topics create --partitions 16 --replication 3
    """
    from holdfast.cli import setup

    async def work() -> setup.TopicsMade:
        return await setup.create_topics(
            connect.kafka_config(), connect.postgres_dsn(), partitions=partitions, replication=replication
        )

    result = connect.run(work())
    if json:
        write_json({"partitions": result.partitions, "made": result.made, "problems": result.problems})
    else:
        for name in result.made:
            say(f"made {plain(name)}")
        say(f"{len(result.made)} topics made; the inbox has {result.partitions} partitions")
        for problem in result.problems:
            say(f"[yellow]problem[/yellow]: {plain(problem)}")
    if result.problems:
        raise typer.Exit(int(ExitCode.NOT_COMPLETED))


@app.command("check")
def check(json: JsonOption = False) -> None:
    """Check that every topic is there with the partitions and the retention that it must have; exit 1 if not.

    [bold]Example[/bold]

      holdfast topics check
    """
    from holdfast.cli import setup

    async def work() -> tuple[int, list[str]]:
        return await setup.find_problems(connect.kafka_config(), connect.postgres_dsn())

    partitions, problems = connect.run(work())
    if json:
        write_json({"partitions": partitions, "problems": problems})
    elif problems:
        for problem in problems:
            say(f"[red]problem[/red]: {plain(problem)}")
    else:
        say(f"all topics are as they should be; the inbox has {partitions} partitions")
    if problems:
        raise typer.Exit(int(ExitCode.NOT_COMPLETED))
