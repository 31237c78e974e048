-- Until now administrators could set worker_dsn: superusers are told once where it is set. Its value is not shown.
DO $worker_dsn$
BEGIN
    IF EXISTS (SELECT 1 FROM cerebro.catalog_settings WHERE name = 'worker_dsn' AND value <> '') THEN
        RAISE WARNING USING
            MESSAGE = 'the setting worker_dsn is set; before this version members of cerebro_admin could set it: check it',
            HINT = 'SELECT value FROM cerebro.settings WHERE name = ''worker_dsn'' shows it; '
                   'SELECT cerebro.cerebro_set(''worker_dsn'', NULL) resets it.';
    END IF;
END
$worker_dsn$;
