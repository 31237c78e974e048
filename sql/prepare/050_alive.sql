-- Runs that somebody drives, and sessions that use what is made anew: both would wait for each other until one of them
-- is ended. Who drives a run holds its advisory lock.
DO $alive$
DECLARE
    keys bigint[];
    pids integer[];
    roles text[];
    runs text;
    first bigint;
    busy record;
    until timestamptz := clock_timestamp() + interval '5 seconds';
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a WHERE a.attname = 'lock_key' AND NOT a.attisdropped
                      AND a.attrelid = to_regclass('cerebro.catalog_runs')) THEN
        RETURN;
    END IF;
    -- In two statements: where the catalog lies on segments, one may not read it beside the locks of all of them.
    SELECT array_agg((l.classid::bigint << 32) | l.objid::bigint), array_agg(l.pid),
           array_agg(coalesce(a.usename, 'unknown')::text) INTO keys, pids, roles
      FROM pg_catalog.pg_locks l
      LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
       AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database());
    EXECUTE $runs$
        SELECT string_agg(DISTINCT format('run %s of %s (process %s)', r.run_id, h.role, h.pid), ', '), min(r.run_id)
          FROM cerebro.catalog_runs r
          JOIN unnest($1, $2, $3) AS h(key, pid, role) ON h.key = r.lock_key AND h.pid = r.driver_pid
         WHERE r.status IN ('starting', 'running')$runs$
       INTO runs, first USING keys, pids, roles;
    IF runs IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55006',
            MESSAGE = format('runs go on in this database: %s; allowed: none while Cerebro-DB is installed', runs),
            HINT = format('"cerebro upgrade --pause" pauses them first, as SELECT cerebro.cerebro_pause(%s) does; their '
                          'owners go on with SELECT cerebro.cerebro_resume(%s, any_version := true).', first, first);
    END IF;
    LOOP
        SELECT l.pid, coalesce(a.usename, 'unknown') AS role, l.relation::regclass::text AS relation INTO busy
          FROM pg_catalog.pg_locks l
          JOIN pg_catalog.pg_class c ON c.oid = l.relation
          JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
          LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
         WHERE n.nspname = 'cerebro' AND l.granted AND l.pid <> pg_backend_pid()
           AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
           -- Autovacuum gives way, and processes of segments belong to a session that is here, too.
           AND a.usename IS NOT NULL AND l.mode <> 'ShareUpdateExclusiveLock'
         ORDER BY l.pid LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF clock_timestamp() > until THEN
            RAISE EXCEPTION USING ERRCODE = '55006',
                MESSAGE = format('process %s of role %s has used %s for 5 seconds in its transaction; allowed: no '
                                 'session that uses schema cerebro while Cerebro-DB is installed',
                                 busy.pid, busy.role, busy.relation),
                HINT = format('Install when its transaction has ended; SELECT pg_terminate_backend(%s) ends it.', busy.pid);
        END IF;
        PERFORM pg_sleep(0.1);
    END LOOP;
    -- Who begins to read from now on waits; who was faster is waited for so long.
    SET LOCAL lock_timeout = '30s';
END
$alive$;
