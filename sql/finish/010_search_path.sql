-- The names work unqualified: schema cerebro ends the search_path of new sessions of this database.
DO $$
DECLARE
    path text;
BEGIN
    SELECT coalesce(
        (SELECT substring(entry from '^search_path=(.*)$')
           FROM pg_catalog.pg_db_role_setting s, unnest(s.setconfig) AS entry
          WHERE s.setdatabase = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
            AND s.setrole = 0 AND entry LIKE 'search_path=%'),
        (SELECT CASE WHEN source = 'configuration file' THEN reset_val ELSE boot_val END
           FROM pg_catalog.pg_settings WHERE name = 'search_path'))
      INTO path;
    PERFORM set_config('search_path', path, true);
    IF NOT 'cerebro' = ANY (current_schemas(false)) THEN
        PERFORM set_config('search_path', concat_ws(', ', nullif(path, ''), 'cerebro'), true);
        EXECUTE format('ALTER DATABASE %I SET search_path FROM CURRENT', current_database());
    END IF;
END
$$;
