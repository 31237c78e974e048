-- Migration {{ name }}, once.
DO $cerebro_migration$
DECLARE
    recorded text;
BEGIN
    SELECT checksum INTO recorded FROM cerebro.catalog_migrations WHERE name = {{ name | sql_string }};
    IF recorded IS NULL THEN
        EXECUTE {{ statements | dollar_quoted }};
        {{ dialect.after_migration | trim | indent(8) }}
        INSERT INTO cerebro.catalog_migrations (name, checksum)
        VALUES ({{ name | sql_string }}, {{ checksum | sql_string }});
    ELSIF recorded <> {{ checksum | sql_string }} THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = {{ ('migration "' ~ name ~ '" differs from the one that made the tables of this database') | sql_string }},
            HINT = 'A released migration never changes. Uninstall and install again where nothing is to be kept.';
    END IF;
END
$cerebro_migration$;
