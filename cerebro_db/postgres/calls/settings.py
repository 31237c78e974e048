"""The settings of the caller's session that each session working for her has: one declared list.

Settings that are not named here, and their reasons, are in docs/security.md. What our own statements write and
read as text depends on none of them: they have the settings of the dialect, and the caller's hold
only while rows of her tables and views are read.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cerebro_db.columns.encoded import Encoding, Recorded
from cerebro_db.columns.values import Column
from cerebro_db.configs.messages import shown
from cerebro_db.errors import NotSupported
from cerebro_db.postgres.dialects.choice import IDENTITY, dialect_of
from cerebro_db.postgres.names import QualifiedName, literal, quote, shown_literal
from cerebro_db.postgres.sessions.dsn import options_of_dsn
from cerebro_db.postgres.sessions.errors import StatementFailed, not_carried
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.relations import Relation

SessionSettings = Mapping[str, str]
"""Values by the names of settings, as ``pg_settings`` has them."""

SEARCH_PATH = "search_path"
# Sessions have these from their beginning, and with them all settings with a prefix (``app.tenant``).
EVERYWHERE = ("row_security",)
# Which text a value is, and which value a text: what a packed table was made with is written down.
STYLES = (
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "timezone_abbreviations",
    "extra_float_digits",
    "bytea_output",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "xmlbinary",
    "xmloption",
    "array_nulls",
    "default_text_search_config",
    "gin_fuzzy_search_limit",
)
# A statement that reads rows for a caller has these of hers, beside the styles.
_OF_READING = (
    "transform_null_equals",
    "standard_conforming_strings",
    "backslash_quote",
    "quote_all_identifiers",
    "restrict_nonsystem_relation_kind",
    "default_transaction_isolation",
    # For superusers only, who may give a role a value.
    "session_replication_role",
    "lo_compat_privileges",
)
# The role that has logged in: it is compared, as no session can be given another one.
SESSION_USER = "session_authorization"
# Of the transaction in which a view is copied.
ISOLATION = "transaction_isolation"
ISOLATIONS = ("read uncommitted", "read committed", "repeatable read", "serializable")
CARRIED = (*EVERYWHERE, *STYLES, *_OF_READING, SEARCH_PATH, SESSION_USER, ISOLATION)
# A job keeps its settings in the catalog.
MOST_CHARACTERS = 60_000
# Of those for superusers: the value that all sessions have where nobody has set one.
DEFAULTS = {"session_replication_role": "origin", "lo_compat_privileges": "off"}

# Names of settings with a prefix that each new session of a role in this database is given.
_GIVEN = """
SELECT DISTINCT split_part(c.entry, '=', 1)
  FROM pg_catalog.pg_db_role_setting d, LATERAL unnest(d.setconfig) AS c(entry)
 WHERE d.setdatabase IN (0, (SELECT b.oid FROM pg_catalog.pg_database b WHERE b.datname = current_database()))
   AND d.setrole IN (0, (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user))
   AND split_part(c.entry, '=', 1) LIKE '%%.%%' ORDER BY 1
"""


def settings_of(plpy: Any) -> SessionSettings:
    """The settings of a caller's session that decide which rows and values she sees."""
    found = plpy.session_settings(CARRIED)
    return {name: value for name, value in found.items() if DEFAULTS.get(name) != value}


def settings_of_session(session: Session, dsn: str) -> SessionSettings:
    """The settings of a session of a client process, as nothing but its connection has made them.

    Args:
        session: that has set nothing itself.
        dsn: of it, whose options may give it settings.
    """
    found = dict(
        session.run(
            "SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY (%s)",
            (list(CARRIED),),
        )
    )
    names = [name for (name,) in session.run(_GIVEN)]
    names += _OPTION.findall(options_of_dsn(dsn))
    for name in dict.fromkeys(names):
        ((found[name],),) = session.run("SELECT pg_catalog.current_setting(%s)", (name,))
    return {name: value for name, value in found.items() if DEFAULTS.get(name) != value}


# A setting with a prefix among the options of a connection: -c app.tenant=acme.
_OPTION = re.compile(r"(?:-c\s*|--)([A-Za-z_][\w$]*(?:\.[A-Za-z_][\w$]*)+)=")


def check_settings(session: Session) -> None:
    """Refuse settings of the caller that a session which works for her cannot have.

    Args:
        session: one that works for her.

    Raises:
        NotSupported: new sessions of the role have a setting that hers has not, and which can't be taken
            from them; or only superusers may set one of hers.
    """
    size = len(json.dumps(dict(session.caller)))
    if size > MOST_CHARACTERS:
        raise NotSupported(
            f"the settings with a prefix of this session take {size} characters; allowed: {MOST_CHARACTERS}, "
            "as sessions that work for it get them",
            hint="RESET what the rows that are read do not depend on",
        )
    known = {name.lower() for name in session.caller}
    for (name,) in session.run(_GIVEN) if session.caller else ():
        if name.lower() not in known:
            raise NotSupported(
                f"this session has no setting {name}, which ALTER ROLE or ALTER DATABASE gives to each new "
                "session of the role: a session that works for this one would see other rows",
                hint=f"set it in this session, SET {name} = '...', or connect anew",
            )
    if any(name in session.caller for name in DEFAULTS):
        try:
            with session.rehearsal():
                session.run(as_seen(session, "SELECT"))
        except StatementFailed as error:
            raise not_carried(error) from None


def everywhere(settings: SessionSettings) -> dict[str, str]:
    """The settings that a session has for all that it does, not only while it reads rows for a caller."""
    return {name: value for name, value in settings.items() if name in EVERYWHERE or "." in name}


def beginning(settings: SessionSettings) -> list[str]:
    """Statements with which each session begins that works for a session with these settings."""
    return [
        f"SET {_parts(name)} = {literal(value)}" for name, value in everywhere(settings).items()
    ]


def work_for(pool: SessionPool, settings: SessionSettings) -> None:
    """Have sessions that are taken from a pool work for a session with these settings."""
    pool.work_for(settings, beginning(settings))


def work_for_run(pool: SessionPool, settings: SessionSettings) -> None:
    """Have sessions that are taken from a pool work for a run, with the settings with which it began."""
    reading = {
        name: value for name, value in pool.caller.items() if name not in everywhere(pool.caller)
    }
    work_for(pool, {**reading, **everywhere(settings)})


def _parts(name: str) -> str:
    return ".".join(map(quote, name.split(".")))


def while_reading(settings: SessionSettings) -> str:
    """JSON of the settings under which rows are read for a caller."""
    left_out = {*EVERYWHERE, SESSION_USER, ISOLATION}
    names = [name for name in settings if name not in left_out and "." not in name]
    return json.dumps({name: settings[name] for name in names})


# -- what is read ------------------------------------------------------------------
def is_seen(session: Session, relation: Relation) -> bool:
    """True if settings of a session decide what is read of a relation: a view, or one with policies.

    Raises:
        NotSupported: so does the role that has logged in, which is another one here.
    """
    found = bool(session.run("SELECT cerebro._is_seen(%s)", (relation.oid,))[0][0])
    login = session.caller.get(SESSION_USER)
    if not found or login is None or login == session.run("SELECT session_user::text")[0][0]:
        return found
    if session.run("SELECT cerebro._asks_session_user(%s)", (relation.oid,))[0][0]:
        raise NotSupported(
            f"{relation.name} shows its rows by session_user, which is {shown(login)} in this session, and the role that "
            "SET ROLE or SECURITY DEFINER has made the current one in sessions that work for it",
            hint="have the view or policy ask for current_user, or call the function without SET ROLE",
        )
    return found


def isolation(session: Session) -> str:
    """The isolation level of the caller's transaction, as SQL."""
    level = session.caller.get(ISOLATION, "read committed")
    return (level if level in ISOLATIONS else "read committed").upper()


def as_seen(session: Session, statement: str) -> str:
    """A statement without a result, under the settings of the caller.

    Args:
        session: of the caller, or one that works for her.
        statement: with parameters that are none; nothing of it but names, which have their schema, is looked up.
    """
    text = literal(statement.replace("%%", "%"))
    return f"SELECT cerebro._do_as_seen({text}, {literal(while_reading(session.caller))})"


def read_as(
    session: Session, relation: Relation, names: Sequence[str], alias: str, more: str = ""
) -> str:
    """FROM item, and its alias, that reads columns of a relation in the caller's own session.

    Where its settings don't decide what is read that is the table itself.

    Args:
        session: of the caller, in a transaction.
        relation: to read.
        names: of the columns.
        alias: of the rows.
        more: what ends the query of a view, such as a LIMIT.
    """
    if not is_seen(session, relation):
        return f"{relation.name.sql} {alias}"
    columns = [one for one in relation.columns if one.name in set(names)]
    ((name,),) = session.run(f"SELECT {IDENTITY}")
    dialect = dialect_of(0, name)
    if not dialect.functions_read_tables:
        copy = QualifiedName("pg_temp", f"cerebro_seen_{secrets.token_hex(8)}")
        listed = ", ".join(quote(one.name) for one in columns)
        text = f"CREATE TEMPORARY TABLE {copy.sql} ON COMMIT DROP AS SELECT {listed} FROM {relation.name.sql}{more}"
        session.run(as_seen(session, f"{text}{dialect.anywhere}"))
        return f"{copy.sql} {alias}"
    return seen_rows(session, relation.name, columns, alias, more)


def seen_rows(
    session: Session, table: QualifiedName, columns: Sequence[Column], alias: str, more: str = ""
) -> str:
    """FROM item, and its alias, that reads columns of a relation as the caller sees them."""
    listed = ", ".join(quote(one.name) for one in columns)
    query = literal(f"SELECT {listed} FROM {table.sql}{more}".replace("%%", "%"))
    kinds = ", ".join(f"{quote(one.name)} {one.type.replace('%', '%%')}" for one in columns)
    reading = literal(while_reading(session.caller))
    return f"cerebro._seen_rows({query}, {reading}) AS {alias}({kinds})"


def styles_while_read(session: Session, relation: Relation) -> dict[str, str]:
    """The settings that decide which text a value of a relation is; none where they don't."""
    if not is_seen(session, relation):
        return {}
    return {name: session.caller[name] for name in STYLES if name in session.caller}


def notify_of_other_styles(
    session: Session,
    relation: Relation,
    encoding: Recorded | None,
    notify: Callable[[str], None],
) -> None:
    """Warn where rows are read with other settings than those an encoding was computed with.

    Args:
        session: of the caller, or one that works for her.
        relation: that is read.
        encoding: of columns, which has recorded its settings; any other depends on none.
        notify: gets one line, where there is something to tell.
    """
    before = encoding.styles if isinstance(encoding, Encoding) else {}
    now = styles_while_read(session, relation) if before else {}
    differ = [name for name in now if before.get(name, now[name]) != now[name]]
    if not differ:
        return
    listed = ", ".join(
        f"{name} is {shown(now[name])}, was {shown(before[name])}" for name in differ
    )
    sets = "; ".join(f"SET {name} = {shown_literal(before[name])}" for name in differ)
    notify(
        f"what {relation.name} holds may depend on settings of the session, and these are not those with which "
        f"its encoding was computed: {listed}; for the same features: {sets}"
    )
