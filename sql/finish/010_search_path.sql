-- The names work unqualified: schema cerebro ends the search_path of new sessions of this database.
DO $$
DECLARE
    path  text;
    names text[];
BEGIN
    path := ({{ search_path.SET_FOR_DATABASE | trim | indent(8) }});
    -- The view is not there before PostgreSQL 9.5.
    IF path IS NULL AND to_regclass('pg_catalog.pg_file_settings') IS NOT NULL THEN
        path := (SELECT setting FROM pg_catalog.pg_file_settings
                  WHERE lower(name) = 'search_path' AND applied);
    END IF;
    IF path IS NULL THEN
        path := (SELECT boot_val FROM pg_catalog.pg_settings WHERE name = 'search_path');
    END IF;
    names := {{ search_path.names_of('path') | indent(4) }};
    IF NOT 'cerebro' = ANY (names) THEN
        {{ search_path.set_to("names || 'cerebro'::text") | indent(8) }}
    END IF;
END
$$;
