"""Postgres: where its server comes from, and how it runs here.

Loopback TCP only, no unix socket, a generated password, and durability as Postgres ships it: what is measured or
tested here commits to disk like the real thing.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from holdfast.embedded.account import Account, home_for, may, unprivileged
from holdfast.embedded.docker import POSTGRES_IMAGE, Container
from holdfast.embedded.errors import EmbeddedError
from holdfast.embedded.leftovers import note_elsewhere
from holdfast.embedded.ports import same_or_free
from holdfast.embedded.server import External, LocalServer, Say, Server

USER = "holdfast"
DATABASE = "holdfast"
CONNECTIONS_MAX = 200


def execute(dsn: str, statement: str) -> None:
    """Run one statement, from sync code, whether or not this thread has an event loop."""

    async def work() -> None:
        connection = await asyncpg.connect(dsn, timeout=5)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work()).result()


def answers(dsn: str) -> bool:
    """Whether a real query is answered."""
    try:
        execute(dsn, "SELECT 1")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
        return False
    return True


def at(dsn: str, database: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(dsn)._replace(path="/" + quote(database)))


def loopback_dsn(password: str, port: int) -> str:
    return f"postgresql://{USER}:{password}@127.0.0.1:{port}/{DATABASE}"


class PostgresServer(Server):
    """The Postgres of a stack: a server, its address, and databases to have on it."""

    @property
    @abstractmethod
    def dsn(self) -> str: ...

    def create_database(self, name: str) -> str:
        """A fresh, empty database; returns its DSN."""
        execute(self.dsn, f'CREATE DATABASE "{name}" TEMPLATE template0')
        return at(self.dsn, name)

    def drop_database(self, name: str) -> None:
        execute(self.dsn, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


class ExternalPostgres(External, PostgresServer):
    def __init__(self, dsn: str) -> None:
        super().__init__("Postgres")
        self._dsn = dsn

    @property
    def dsn(self) -> str:
        return self._dsn


class DockerPostgres(Container, PostgresServer):
    # Only this machine can reach the port, and the container outlives the process that made it.
    _password = "holdfast"

    def __init__(self, folder: Path, say: Say) -> None:
        super().__init__(
            folder,
            say,
            name="postgres",
            image=POSTGRES_IMAGE,
            inner_port=5432,
            environment=lambda _: {
                "POSTGRES_USER": USER,
                "POSTGRES_PASSWORD": self._password,
                "POSTGRES_DB": DATABASE,
            },
            answers=lambda port: answers(loopback_dsn(self._password, port)),
        )

    @property
    def dsn(self) -> str:
        return loopback_dsn(self._password, self.port)


class PostgresProcess(LocalServer, PostgresServer):
    """`postgres` itself as our child (not through pg_ctl, so that its pid is known and its end is seen)."""

    name = "postgres"
    stop_signal = signal.SIGINT  # Postgres's fast shutdown: rolls back, writes a checkpoint, ends.

    def __init__(self, folder: Path, say: Say, binaries: Path) -> None:
        self._who: Account = unprivileged()
        super().__init__(folder, say, self._who)
        self._binaries = binaries
        self._port = 0
        self._home = folder / "postgres"

    @property
    def dsn(self) -> str:
        return loopback_dsn(self._password(), self._port)

    def working_folder(self) -> Path:
        return self._home

    def choose_address(self) -> None:
        [self._port] = same_or_free(self.folder / "postgres.ports.json", 1)

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": "",
            "max_connections": CONNECTIONS_MAX,
            "logging_collector": "off",
        }
        flags = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self._binaries / "postgres"), "-D", str(self._home / "data"), *flags]

    def answers(self) -> bool:
        return answers(self.dsn)

    def prepare(self) -> None:
        self._home = home_for(self._who, self.folder)
        if self._home.parent != self.folder:
            self.say(f"Postgres: user {self._who.name} cannot enter {self.folder}; its data is in {self._home}")
            note_elsewhere(self.folder, self._home)
        if not may(self._who, "-x", self._binaries / "postgres"):
            self._copy_binaries()
        data = self._home / "data"
        if data.exists():
            self._check_version(data)
        else:
            self._init(data)

    def _copy_binaries(self) -> None:
        # A wheel inside a virtual environment that the account cannot enter. The programs find their libraries
        # relative to themselves, in a folder beside the package, so the layout must stay.
        package = self._binaries.parents[1]
        target = self._home / "install"
        draft = self._home / "install.draft"
        if not target.exists():
            shutil.rmtree(draft, ignore_errors=True)
            for part in (package, package.with_name(package.name + ".libs")):
                if part.is_dir():
                    shutil.copytree(part, draft / part.name, symlinks=True)
            draft.rename(target)
        self._binaries = target / package.name / self._binaries.relative_to(package)

    def _check_version(self, data: Path) -> None:
        has = (data / "PG_VERSION").read_text().strip()
        version = self._run("postgres", "--version").split()[2]
        if version.split(".")[0] != has:
            raise EmbeddedError(
                f"the data in {data} was written by Postgres {has}, this machine has {version}; "
                f"remove {self.folder} to start afresh"
            )

    def _password(self) -> str:
        file = self.folder / "postgres.password"
        if not file.exists():
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as out:
                out.write(secrets.token_urlsafe(18))
        return file.read_text()

    def _init(self, data: Path) -> None:
        # Into a draft, then renamed: a killed initdb never looks like a finished one.
        draft = self._home / "data.draft"
        shutil.rmtree(draft, ignore_errors=True)
        pwfile = self._home / "password.draft"
        pwfile.write_text(self._password())
        pwfile.chmod(0o600)
        if self._who.switch:
            shutil.chown(pwfile, self._who.uid, self._who.gid)
        try:
            self._run(
                "initdb",
                f"--pgdata={draft}",
                f"--username={USER}",
                f"--pwfile={pwfile}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
            )
            self._create_database(draft)
        finally:
            with contextlib.suppress(FileNotFoundError):
                pwfile.unlink()
        draft.rename(data)

    def _create_database(self, data: Path) -> None:
        # Single-user mode needs no port: the database exists before anybody can connect.
        self._run("postgres", "--single", "-D", str(data), "postgres", stdin=f"CREATE DATABASE {DATABASE};\n")

    def _run(self, program: str, *arguments: str, stdin: str | None = None) -> str:
        command = [str(self._binaries / program), *arguments]
        switch = self._who if self._who.switch else None
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._home,
            user=switch.uid if switch else None,
            group=switch.gid if switch else None,
            extra_groups=[] if switch else None,
        )
        if done.returncode != 0:
            raise EmbeddedError(f"{program} failed ({done.returncode}):\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout
