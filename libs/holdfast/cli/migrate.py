"""`holdfast migrate`."""

import typer

from holdfast.cli import connect
from holdfast.cli.output import JsonOption, plain, say, write_json

app = typer.Typer()


@app.command("migrate")
def migrate(json: JsonOption = False) -> None:
    """Bring the database to the newest schema, and make the services' role, which cannot change history.

    Safe to run twice, and by two processes at once. Needs a login that may create a schema and a role.

    [bold]Example[/bold]

      HOLDFAST_POSTGRES=postgresql://owner@db/holdfast holdfast migrate
    """
    from holdfast.cli.setup import migrate_database

    async def work() -> list[str]:
        return await migrate_database(connect.postgres_dsn())

    applied = connect.run(work())
    if json:
        write_json({"applied": applied})
    else:
        say(f"applied {plain(', '.join(applied))}" if applied else "nothing to do: the schema is the newest")
