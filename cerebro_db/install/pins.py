"""Settings that decide how the script of an installation is read, and what the server answers to it."""

from __future__ import annotations

from collections.abc import Mapping

# A database, or a role, may have others. Each is set where the server has it, and the role may.
_VALUES: Mapping[str, str] = {
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "array_nulls": "on",
    "backslash_quote": "safe_encoding",
    "bytea_output": "hex",
    "check_function_bodies": "on",
    "client_min_messages": "warning",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "extra_float_digits": "3",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "quote_all_identifiers": "off",
    "row_security": "on",
    "session_replication_role": "origin",
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "transform_null_equals": "off",
}


def pinned(how: str) -> str:
    """A statement that gives all of these settings their values.

    Args:
        how: ``SET``, or ``SET LOCAL`` for the transaction.
    """
    values = ",\n        ".join(f"('{name}', '{value}')" for name, value in _VALUES.items())
    return f"""DO $$
DECLARE
    pin record;
BEGIN
    FOR pin IN SELECT p.name, p.value FROM (VALUES
        {values}) AS p (name, value)
          JOIN pg_catalog.pg_settings s ON s.name OPERATOR(pg_catalog.=) p.name
         WHERE s.context OPERATOR(pg_catalog.=) 'user'
            OR pg_catalog.current_setting('is_superuser') OPERATOR(pg_catalog.=) 'on'
    LOOP
        EXECUTE pg_catalog.format('{how} %s = %L', pin.name, pin.value);
    END LOOP;
END
$$;"""
