"""As whom Postgres runs, and where its data can live.

Postgres refuses to run as root, rightly. When we are root it runs as `postgres`, else as `nobody`, and its data must
lie where that account can go: a checkout under a home that only root may enter is no such place.
"""

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from holdfast.embedded.errors import EmbeddedError


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int
    switch: bool  # False when it is ourselves.


def unprivileged() -> Account:
    """Ourselves, unless we are root."""
    if os.geteuid() != 0:
        me = pwd.getpwuid(os.geteuid())
        return Account(me.pw_name, me.pw_uid, me.pw_gid, switch=False)
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, found.pw_uid, found.pw_gid, switch=True)
    raise EmbeddedError(
        "Postgres must not run as root and there is no user 'postgres' or 'nobody'; run as another user"
    )


def may(account: Account, test: str, path: Path) -> bool:
    """Whether the account passes `test -x PATH` (or -r, -w), asked as the account itself: modes and ACLs count."""
    command = ["test", test, str(path)]
    if not account.switch:
        return subprocess.run(command, check=False).returncode == 0
    done = subprocess.run(command, check=False, user=account.uid, group=account.gid, extra_groups=[], cwd="/")
    return done.returncode == 0


def home_for(account: Account, folder: Path) -> Path:
    """A folder of the account's own: under `folder` when it can go there, else one in the system's temp folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if may(account, "-x", folder):
        home = folder / "postgres"
    else:
        digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        home = Path(tempfile.gettempdir()) / f"holdfast-{account.name}-{digest}"
    if home.is_symlink() or (home.exists() and home.stat().st_uid not in (account.uid, os.geteuid())):
        raise EmbeddedError(f"{home} belongs to somebody else; remove it or use another folder")
    home.mkdir(mode=0o700, exist_ok=True)
    if account.switch:
        shutil.chown(home, account.uid, account.gid)
    if not may(account, "-w", home):
        raise EmbeddedError(f"user {account.name} cannot enter {home}; set TMPDIR to a folder that everybody may enter")
    return home
