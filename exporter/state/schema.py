"""The tables, their versions, and how to tell a state file of ours from anything else."""

import sqlite3
from collections.abc import Sequence
from enum import StrEnum

from exporter.errors import ExporterError

# "azse" in ASCII, where SQLite's header tells whose file it is (https://sqlite.org/fileformat2.html, 1.3.17).
APPLICATION_ID = 0x617A7365

# Each script leads from its index to the next schema version. Shipped ones never change; new ones are added.
# Every table needs a primary key with a meaning of its own, none that merely counts: see `merge`.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE events (
        key TEXT PRIMARY KEY NOT NULL,  -- TrackedEvent.key
        first_seen REAL NOT NULL,       -- Unix time, as are all REALs
        ended REAL,                     -- NULL while a document lists the event
        tracked TEXT NOT NULL           -- the TrackedEvent as JSON
    );
    CREATE INDEX events_ended ON events (ended) WHERE ended IS NOT NULL;
    CREATE TABLE watch (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        incarnation TEXT,               -- text: Azure sets no limit to it, SQLite does to an INTEGER
        last_success TEXT               -- ISO 8601, UTC
    );
    """,
    """
    CREATE TABLE outbox (
        target TEXT NOT NULL,           -- the name of a notification target
        key TEXT NOT NULL,              -- TrackedEvent.key
        sequence INTEGER NOT NULL,      -- the transition's number in the event's life, from 1
        position INTEGER NOT NULL,      -- messages of a target go out in this order
        at REAL NOT NULL,               -- when the transition happened
        message TEXT NOT NULL,          -- the Message as JSON; "" once it is done with
        done REAL,                      -- when it was delivered or expired; NULL while it waits
        PRIMARY KEY (target, key, sequence)
    );
    CREATE INDEX outbox_position ON outbox (position);
    CREATE INDEX outbox_waiting ON outbox (target, position) WHERE done IS NULL;
    """,
    """
    CREATE TABLE hook_jobs (
        hook TEXT NOT NULL,             -- the hook's name
        key TEXT NOT NULL,              -- TrackedEvent.key
        sequence INTEGER NOT NULL,      -- the transition's number in the event's life, from 1
        position INTEGER NOT NULL,      -- jobs of an event run in this order
        at REAL NOT NULL,               -- when the transition happened
        job TEXT NOT NULL,              -- the Job as JSON; "" once it is done with
        attempts INTEGER NOT NULL,      -- how often it was begun
        done REAL,                      -- when it ended; NULL while it is to run
        outcome TEXT,                   -- a HookOutcome; NULL where there is none
        PRIMARY KEY (hook, key, sequence)
    );
    CREATE INDEX hook_jobs_waiting ON hook_jobs (position) WHERE done IS NULL;
    CREATE INDEX hook_jobs_key ON hook_jobs (key);
    CREATE TABLE approvals (
        key TEXT PRIMARY KEY NOT NULL,  -- TrackedEvent.key
        event_id TEXT NOT NULL,         -- as it is sent to Azure
        rule TEXT NOT NULL,             -- the rule's name
        decided REAL NOT NULL,          -- just before the newest request
        sent REAL                       -- when Azure took it; NULL where that is not known
    );
    """,
    """
    ALTER TABLE hook_jobs ADD COLUMN event TEXT NOT NULL DEFAULT '';       -- its first id, in lower case
    ALTER TABLE hook_jobs ADD COLUMN transition TEXT NOT NULL DEFAULT '';  -- a Transition
    UPDATE hook_jobs SET event = key;
    """,
)


class Defect(StrEnum):
    """Why a file cannot be used; part of the name under which it is kept."""

    CORRUPT = "corrupt"
    NEWER = "newer"


class UnusableFileError(ExporterError):
    """The file is no sound state file that this version understands. Never leaves the package."""

    def __init__(self, message: str, defect: Defect = Defect.CORRUPT) -> None:
        super().__init__(message)
        self.defect = defect


def in_memory(migrations: Sequence[str]) -> sqlite3.Connection:
    """Make an empty database of the newest version, in memory."""
    connection = memory_connection()
    try:
        migrate(connection, migrations)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def memory_connection() -> sqlite3.Connection:
    """Make an empty database in memory; threads share it under their own lock, transactions are explicit."""
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def version_of(connection: sqlite3.Connection, migrations: Sequence[str]) -> int:
    """Give the schema version of the file behind a connection; 0 where it is still empty.

    Raises:
        UnusableFileError: it belongs to another program, or to a newer version of this one.
        sqlite3.Error: it cannot be read, or is no SQLite file.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, objects) == (0, 0, 0):
        return 0
    if application != APPLICATION_ID:
        raise UnusableFileError("it belongs to another program")
    if version > len(migrations):
        raise UnusableFileError(
            f"a newer version of the exporter wrote it (schema {version}, this one knows {len(migrations)})",
            Defect.NEWER,
        )
    return int(version)


def migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> bool:
    """Bring a database to the newest version, one transaction per step; tell whether there was any.

    Raises:
        sqlite3.Error: a step failed; the steps before it stay.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, script in enumerate(migrations[version:], start=version + 1):
        header = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number};"
        try:
            connection.executescript(f"BEGIN; {script}; {header} COMMIT;")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return bool(version < len(migrations))


def check(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """Look for damage in a database of the newest version.

    Raises:
        UnusableFileError: pages are damaged, or tables or columns are missing.
        sqlite3.Error: it is damaged so badly that it cannot be looked at.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise UnusableFileError(f"it is damaged: {verdict}")
    model = in_memory(migrations)
    try:
        missing = _columns(model) - _columns(connection)
    finally:
        model.close()
    if missing:
        table, column = min(missing)
        raise UnusableFileError(f"it is damaged: column {column} of table {table} is missing")


def merge(newer: sqlite3.Connection, older: sqlite3.Connection) -> None:
    """Copy every row of ``newer`` into ``older``, both of the newest version; where keys meet, it wins."""
    tables = sorted({table for table, _ in _columns(newer)})
    older.execute("BEGIN")
    for table in tables:
        rows = newer.execute(f'SELECT * FROM "{table}"').fetchall()  # noqa: S608 - our own tables' names
        if rows:
            places = ", ".join("?" * len(rows[0]))
            sql = f'INSERT OR REPLACE INTO "{table}" VALUES ({places})'  # noqa: S608 - as above
            older.executemany(sql, rows)
    older.execute("COMMIT")


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    return set(
        connection.execute(
            "SELECT t.name, c.name FROM sqlite_master t JOIN pragma_table_info(t.name) c"
            " WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"
        )
    )
