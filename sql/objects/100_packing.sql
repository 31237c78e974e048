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
) RETURNS bytea LANGUAGE plpython3u AS {{ udf('_pack_arrays') }};
COMMENT ON FUNCTION cerebro._pack_arrays(
    bytea, bytea, bytea, integer[], double precision, text, boolean) IS
'Internal: the float32 bytes of a buffer. rows: array_send() of every row, concatenated; keys: tidsend() of the same rows; positions: int32, the place of each row of the buffer among the sorted keys; shape: of one row; divisor: normalizing constant; name: of the column, for messages; is_whole: whether its type holds whole numbers only.';

CREATE OR REPLACE FUNCTION cerebro._pack_labels(ids bytea, keys bytea, positions bytea)
RETURNS bytea LANGUAGE plpython3u AS {{ udf('_pack_labels') }};
COMMENT ON FUNCTION cerebro._pack_labels(bytea, bytea, bytea) IS
'Internal: the int32 bytes of the class ids of a buffer. ids: int4send() of every row, concatenated; keys and positions as in cerebro._pack_arrays.';

CREATE OR REPLACE FUNCTION cerebro._pack_weights(targets bytea, weights bytea, rows integer)
RETURNS bytea LANGUAGE plpython3u AS {{ udf('_pack_weights') }};
COMMENT ON FUNCTION cerebro._pack_weights(bytea, bytea, integer) IS
'Internal: the bytes of the targets of a buffer, each with its float32 weight behind it.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_pack(
    source_table text,
    output_table text,
    dependent_varname text,
    independent_varname text,
    buffer_size integer DEFAULT NULL,
    normalizing_const double precision DEFAULT 1.0,
    num_classes integer DEFAULT NULL,
    distribution_rules text DEFAULT 'all_segments',
    num_partitions integer DEFAULT NULL,
    seed bigint DEFAULT 0,
    sample_weight text DEFAULT NULL,
    replace boolean DEFAULT false,
    encoding_of text DEFAULT NULL
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_pack') }};
COMMENT ON FUNCTION cerebro.cerebro_pack(
    text, text, text, text, integer, double precision, integer, text, integer, bigint, text, boolean, text) IS
'Packs a table for training: rows shuffled by the seed, spread evenly over partitions, and packed into buffers of float32 features and class ids (or float32 targets). Makes output_table and <output_table>_summary. buffer_size: most rows in a buffer (default: about 8 MB of features); normalizing_const: every feature is divided by it; num_classes: at least the classes found; dependent_varname, independent_varname: columns separated by commas for models of several inputs and outputs; distribution_rules: where there are segments, all_segments, gpu_segments for those of hosts with GPUs, or the name of a table with a column dbid; num_partitions: default the cores of the server; sample_weight: a column of weights of the rows in training; encoding_of: a packed table or models, whose classes, shapes and normalizing constant hold here, too.';

-- The number of classes of each of several outputs, at the place where MADlib has it. The one with a
-- text is there for NULL and array literals, which would otherwise be of an ambiguous type.
CREATE OR REPLACE FUNCTION cerebro.cerebro_pack(
    source_table text,
    output_table text,
    dependent_varname text,
    independent_varname text,
    buffer_size integer,
    normalizing_const double precision,
    num_classes integer[],
    distribution_rules text DEFAULT 'all_segments',
    num_partitions integer DEFAULT NULL,
    seed bigint DEFAULT 0,
    sample_weight text DEFAULT NULL,
    replace boolean DEFAULT false,
    encoding_of text DEFAULT NULL
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_pack') }};
COMMENT ON FUNCTION cerebro.cerebro_pack(
    text, text, text, text, integer, double precision, integer[], text, integer, bigint, text, boolean, text) IS
'The same with the number of classes of each of several outputs; NULL for float targets.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_pack(
    source_table text,
    output_table text,
    dependent_varname text,
    independent_varname text,
    buffer_size integer,
    normalizing_const double precision,
    num_classes text,
    distribution_rules text DEFAULT 'all_segments',
    num_partitions integer DEFAULT NULL,
    seed bigint DEFAULT 0,
    sample_weight text DEFAULT NULL,
    replace boolean DEFAULT false,
    encoding_of text DEFAULT NULL
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_pack') }};
COMMENT ON FUNCTION cerebro.cerebro_pack(
    text, text, text, text, integer, double precision, text, text, integer, bigint, text, boolean, text) IS
'The same with the numbers of classes as the text of an array, such as {3,NULL}.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_pack_columns(
    source_table text,
    output_table text,
    dependent_varname text,
    independent_varname text,
    buffer_size integer DEFAULT NULL,
    numbers text DEFAULT 'standardize',
    categories text DEFAULT 'onehot',
    max_categories integer DEFAULT 100,
    encodings json DEFAULT NULL,
    excluded text DEFAULT NULL,
    num_classes integer DEFAULT NULL,
    num_partitions integer DEFAULT NULL,
    seed bigint DEFAULT 0,
    sample_weight text DEFAULT NULL,
    distribution_rules text DEFAULT 'all_segments',
    replace boolean DEFAULT false,
    encoding_of text DEFAULT NULL,
    min_coverage double precision DEFAULT 0.5
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_pack_columns') }};
COMMENT ON FUNCTION cerebro.cerebro_pack_columns(
    text, text, text, text, integer, text, text, integer, json, text, integer, integer, bigint,
    text, text, boolean, text, double precision) IS
'Packs columns of mixed types for training: numbers, booleans, categories, dates and times become the column features, with an encoding that is computed from the source and recorded. independent_varname: columns separated by commas, or * for all but the dependent variable and those of excluded. numbers: standardize, minmax or none; categories: onehot or integer, for the max_categories most frequent ones of a column; encodings: JSON from columns to methods of their own. encoding_of: a packed table, a table of models or a registered model such as model:name@alias, whose encoding and classes are used instead of new ones. min_coverage: the share of values that the most frequent categories of each column must have, from 0 to 1. Makes output_table, <output_table>_summary and <output_table>_encoding.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_encode(
    source_table text,
    training_table text,
    output_table text,
    id_col text,
    replace boolean DEFAULT false
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_encode') }};
COMMENT ON FUNCTION cerebro.cerebro_encode(text, text, text, text, boolean) IS
'The features of the rows of a table, by the encoding that cerebro_pack_columns has recorded with training_table, which may also be a table of models trained on it, or a registered model. Makes output_table with the id and features.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_create_encoder(
    source_table text,
    training_table text,
    function_name text,
    replace boolean DEFAULT false
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_create_encoder') }};
COMMENT ON FUNCTION cerebro.cerebro_create_encoder(text, text, text, boolean) IS
'Makes a function from a row of source_table to its features, for cerebro_predict_row in queries and triggers, by the encoding that training_table has: a table that cerebro_pack_columns made, a table of models trained on it, or a registered model.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_pack_validation(
    source_table text,
    output_table text,
    dependent_varname text,
    independent_varname text,
    training_table text,
    buffer_size integer DEFAULT NULL,
    distribution_rules text DEFAULT NULL,
    replace boolean DEFAULT false,
    on_error text DEFAULT 'stop'
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_pack_validation') }};
COMMENT ON FUNCTION cerebro.cerebro_pack_validation(
    text, text, text, text, text, integer, text, boolean, text) IS
'Packs a validation table with the class values, row shape, normalizing constant and number of partitions of training_table, a table that cerebro_pack or cerebro_pack_columns made; with the encoding of the latter, where independent_varname may be NULL. As many columns, separated by commas, as the training table has. Rows keep their order. distribution_rules: as in cerebro_pack; by default the segments of training_table. on_error: as in cerebro_pack_images, of images.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_convert_bytea_to_real_array(data bytea)
RETURNS real[] LANGUAGE plpython3u IMMUTABLE AS {{ udf('cerebro_convert_bytea_to_real_array') }};
COMMENT ON FUNCTION cerebro.cerebro_convert_bytea_to_real_array(bytea) IS
'The numbers in a column of features, or of float targets, of a packed table, one row after another.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_convert_bytea_to_integer_array(data bytea)
RETURNS integer[] LANGUAGE plpython3u IMMUTABLE AS {{ udf('cerebro_convert_bytea_to_integer_array') }};
COMMENT ON FUNCTION cerebro.cerebro_convert_bytea_to_integer_array(bytea) IS
'The numbers of classes in a column of a packed table, one row after another.';
