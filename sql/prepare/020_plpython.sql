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
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('database "%s" has the encoding %s; allowed: UTF8, as PL/Python of this server damages '
                             'texts in any other one, and can end the server with an error whose text has other '
                             'letters than ASCII', current_database(), current_setting('server_encoding')),
            HINT = 'Make a database with CREATE DATABASE new TEMPLATE template0 ENCODING ''UTF8'', move the tables by '
                   'pg_dump and psql, which convert them (of a database in SQL_ASCII say what its texts are: '
                   'pg_dump --encoding), and install there.';
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
