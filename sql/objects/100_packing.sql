-- Packing: the functions that users call, and those that worker sessions call for each buffer.

CREATE OR REPLACE FUNCTION cerebro._loopback(setting text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE $1
               WHEN 'worker_dsn' THEN
                   (SELECT s.value FROM cerebro.catalog_settings s WHERE s.name = 'worker_dsn')
               WHEN 'unix_socket_directories' THEN
                   pg_catalog.current_setting('unix_socket_directories')
           END
$$;
-- Where no role may be given the right to read that setting, its value of now is written down.
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'pg_read_all_settings') THEN
        EXECUTE pg_catalog.format($function$
            CREATE OR REPLACE FUNCTION cerebro._loopback(setting text) RETURNS text
            LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L
            $function$, pg_catalog.format($body$
            SELECT CASE $1
                       WHEN 'worker_dsn' THEN
                           (SELECT s.value FROM cerebro.catalog_settings s WHERE s.name = 'worker_dsn')
                       WHEN 'unix_socket_directories' THEN %L::text
                   END
            $body$, pg_catalog.current_setting('unix_socket_directories')));
    END IF;
END
$$;
ALTER FUNCTION cerebro._loopback(text) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._loopback(text) IS
'Internal: how the server reaches itself. Argument: unix_socket_directories, or worker_dsn for what an administrator set.';

CREATE OR REPLACE FUNCTION cerebro._pack_arrays(
    rows bytea, keys bytea, positions bytea, shape integer[], divisor double precision, name text,
    is_whole boolean
) RETURNS bytea LANGUAGE plpython3u AS {{ plpython('return relay.trainer("packing_rows.arrays", rows, keys, positions, shape, divisor, name, is_whole)') }};
COMMENT ON FUNCTION cerebro._pack_arrays(
    bytea, bytea, bytea, integer[], double precision, text, boolean) IS
'Internal: the float32 bytes of a buffer. rows: array_send() of every row, concatenated; keys: tidsend() of the same rows; positions: int32, the place of each row of the buffer among the sorted keys; shape: of one row; divisor: normalizing constant; name: of the column, for messages; is_whole: whether its type holds whole numbers only.';

CREATE OR REPLACE FUNCTION cerebro._pack_labels(ids bytea, keys bytea, positions bytea)
RETURNS bytea LANGUAGE plpython3u AS {{ plpython('return relay.trainer("packing_rows.labels", ids, keys, positions)') }};
COMMENT ON FUNCTION cerebro._pack_labels(bytea, bytea, bytea) IS
'Internal: the int32 bytes of the class ids of a buffer. ids: int4send() of every row, concatenated; keys and positions as in cerebro._pack_arrays.';

CREATE OR REPLACE FUNCTION cerebro._pack_weights(targets bytea, weights bytea, rows integer)
RETURNS bytea LANGUAGE plpython3u AS {{ plpython('return relay.trainer("packing_rows.weights", targets, weights, rows)') }};
COMMENT ON FUNCTION cerebro._pack_weights(bytea, bytea, integer) IS
'Internal: the bytes of the targets of a buffer, each with its float32 weight behind it.';

{{ function('cerebro_pack') }}

{{ function('cerebro_pack_columns') }}

{{ function('cerebro_encode') }}

{{ function('cerebro_create_encoder') }}

{{ function('cerebro_pack_validation') }}

{{ function('cerebro_convert_bytea_to_real_array') }}

{{ function('cerebro_convert_bytea_to_integer_array') }}
