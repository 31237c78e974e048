-- Names are the server's own from here on, whatever others have put into schemas of the search_path.
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL standard_conforming_strings = on;
{{ pinned("SET LOCAL") }}
-- One installation at a time in a database. The lock is one that
-- superusers alone can take, and that is in nobody's way: an advisory lock is for everyone.
DO $$
DECLARE
    busy text;
BEGIN
    SET LOCAL lock_timeout = '{{ lock_seconds }}s';
    LOCK TABLE pg_catalog.pg_user_mapping IN SHARE UPDATE EXCLUSIVE MODE;
    SET LOCAL lock_timeout = 0;
EXCEPTION
WHEN insufficient_privilege THEN
    NULL;  -- the checks that follow tell who may install
WHEN lock_not_available THEN
    SELECT pg_catalog.concat('process ', l.pid, ' of role ', a.usename) INTO busy
      FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) l.pid
     WHERE l.relation OPERATOR(pg_catalog.=) 'pg_catalog.pg_user_mapping'::pg_catalog.regclass AND l.granted
       AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
       AND l.mode OPERATOR(pg_catalog.=) 'ShareUpdateExclusiveLock' AND l.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
     ORDER BY a.pid IS NULL  -- a session's own process before those that it has on segments
     LIMIT 1;
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
        MESSAGE = pg_catalog.concat('another installation has been under way for {{ lock_seconds }} seconds: ', busy),
        HINT = 'try again when it has ended';
END
$$;
