-- What an installation needs before Python can run in the server.
DO $$
DECLARE
    major text := substring(current_setting('server_version') from '^\d+');
BEGIN
    IF current_setting('is_superuser') <> 'on' THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('this needs a superuser, and role "%s" is not one', current_user),
            HINT = 'Connect as a superuser, for example as "postgres". Who uses Cerebro-DB need not be one.';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_available_extensions WHERE name = 'plpython3u') THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = 'this server has no plpython3u',
            HINT = format('Install it on the server. On Debian and Ubuntu it is the package "postgresql-plpython3-%1$s"; '
                          'of PGDG on RHEL and Rocky, "postgresql%1$s-plpython3".', major);
    END IF;
END
$$;
CREATE EXTENSION IF NOT EXISTS plpython3u;
