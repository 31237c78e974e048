"""Why a test is left out where tables lie on segments: the whole table of reasons."""

EMBEDDED_ONLY = "it is about the embedded server"
NOBODY_TELLS = "triggers run on segments there, where a NOTIFY is heard by nobody"
NO_ADDRESSES = (
    "other sessions cannot read rows by their addresses there: one session does all of it"
)
NO_TABLES_ON_SEGMENTS = (
    "a function that reads tables cannot be called for rows that lie on segments"
)
NO_GATE = "no trigger sees rows of hops there, so that no hop can be held (tests/greenplum/test_parameter_server.py)"
NO_SUCH_SQL = "the test is about SQL that its PostgreSQL does not have"
WAITS_FOR_LOCKS = "a session there is not asked who holds the lock that another one waits for"
