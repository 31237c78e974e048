{% if madlib -%}
-- The names of MADlib's functions, with its arguments in its order, on request. They hand their arguments on, and keep the
-- caller's search_path, on which those look for tables. Old servers want a void at the end of a function of that type.
DO $$
DECLARE
    other record;
BEGIN
    FOR other IN
        SELECT n.oid, pg_catalog.obj_description(n.oid, 'pg_namespace') IS NOT DISTINCT FROM {{ madlib_comment | sql_string }} AS is_ours
          FROM pg_catalog.pg_namespace n WHERE n.nspname = 'madlib'
    LOOP
        IF NOT other.is_ours THEN
            RAISE EXCEPTION USING ERRCODE = '0A000',
                MESSAGE = 'schema "madlib" exists and is not one of Cerebro-DB: it is that of MADlib itself, perhaps',
                HINT = 'Leave --madlib out and call the functions of schema cerebro; or first ALTER SCHEMA madlib RENAME TO another_name.';
        END IF;
    END LOOP;
    -- Whoever owns one of these functions could have everyone who calls it run theirs.
    FOR other IN
        SELECT o.what, r.rolname AS role
          FROM (SELECT 'schema madlib' AS what, nspowner AS owner FROM pg_catalog.pg_namespace WHERE nspname = 'madlib'
                 UNION ALL
                SELECT 'function ' || p.oid::regprocedure, p.proowner
                  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                 WHERE n.nspname = 'madlib') o
          JOIN pg_catalog.pg_roles r ON r.oid = o.owner
         WHERE NOT r.rolsuper
         ORDER BY o.what DESC
         LIMIT 1
    LOOP
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('%s belongs to role "%s"; allowed there: what superusers own', other.what, other.role),
            HINT = 'Find out who made it, then rename or drop it: Cerebro-DB makes the schema itself.';
    END LOOP;
END
$$;
CREATE SCHEMA IF NOT EXISTS madlib;
COMMENT ON SCHEMA madlib IS {{ madlib_comment | sql_string }};
GRANT USAGE ON SCHEMA madlib TO cerebro_user, cerebro_admin;

CREATE OR REPLACE FUNCTION madlib.train_test_split(
    source_table text,
    output_table text,
    train_proportion float8,
    test_proportion float8 DEFAULT NULL,
    grouping_cols text DEFAULT NULL,
    target_cols text DEFAULT NULL,
    with_replacement boolean DEFAULT false,
    separate_output_tables boolean DEFAULT false
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_train_test_split($1, $2, $3, $4, $5, $6, $7, $8)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.training_preprocessor_dl(
    source_table varchar,
    output_table varchar,
    dependent_varname varchar,
    independent_varname varchar,
    buffer_size integer DEFAULT NULL,
    normalizing_const float8 DEFAULT 1.0,
    num_classes integer[] DEFAULT NULL,
    distribution_rules text DEFAULT NULL
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_pack($1, $2, $3, $4, $5, coalesce($6, 1.0), $7, coalesce($8, 'all_segments'))
$madlib$;

CREATE OR REPLACE FUNCTION madlib.validation_preprocessor_dl(
    source_table varchar,
    output_table varchar,
    dependent_varname varchar,
    independent_varname varchar,
    training_preprocessor_table varchar,
    buffer_size integer DEFAULT NULL,
    distribution_rules text DEFAULT NULL
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_pack_validation($1, $2, $3, $4, $5, $6, coalesce($7, 'all_segments'))
$madlib$;

CREATE OR REPLACE FUNCTION madlib.load_keras_model(
    keras_model_arch_table varchar,
    model_arch json,
    model_weights bytea DEFAULT NULL,
    name text DEFAULT NULL,
    description text DEFAULT NULL
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_load_model($1, $2, $3, $4, $5);
    SELECT ''::pg_catalog.void
$madlib$;

CREATE OR REPLACE FUNCTION madlib.delete_keras_model(
    keras_model_arch_table varchar,
    model_id integer
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_delete_model($1, $2)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.load_custom_function(
    object_table varchar,
    object bytea,
    name text,
    description text DEFAULT NULL
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_load_custom_function($1, $2, $3, $4)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.delete_custom_function(
    object_table varchar,
    id integer
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_delete_custom_function($1, $2)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.delete_custom_function(
    object_table varchar,
    name text
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_delete_custom_function($1, $2)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.load_top_k_accuracy_function(
    object_table varchar,
    k integer
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_load_top_k_accuracy_function($1, $2)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.load_model_selection_table(
    model_arch_table varchar,
    model_selection_table varchar,
    model_id_list integer[],
    compile_params_list varchar[],
    fit_params_list varchar[],
    object_table varchar DEFAULT NULL
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_load_configs($1, $2, $3, $4::text[], $5::text[], $6)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.generate_model_configs(
    model_arch_table varchar,
    model_selection_table varchar,
    model_id_list integer[],
    compile_params_grid varchar,
    fit_params_grid varchar,
    search_type varchar DEFAULT 'grid',
    num_configs integer DEFAULT NULL,
    random_state integer DEFAULT NULL,
    object_table varchar DEFAULT NULL
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_generate_configs($1, $2, $3, $4, $5, $6, $7, $8, $9)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.madlib_keras_fit(
    source_table varchar,
    model varchar,
    model_arch_table varchar,
    model_id integer,
    compile_params varchar,
    fit_params varchar,
    num_iterations integer,
    use_gpus boolean DEFAULT false,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    warm_start boolean DEFAULT NULL,
    name varchar DEFAULT NULL,
    description varchar DEFAULT NULL,
    object_table varchar DEFAULT NULL
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_fit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);
    SELECT ''::pg_catalog.void
$madlib$;

CREATE OR REPLACE FUNCTION madlib.madlib_keras_fit_multiple_model(
    source_table varchar,
    model_output_table varchar,
    model_selection_table varchar,
    num_iterations integer,
    use_gpus boolean DEFAULT false,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    warm_start boolean DEFAULT NULL,
    name varchar DEFAULT NULL,
    description varchar DEFAULT NULL,
    use_caching boolean DEFAULT true
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_fit_multiple($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
    SELECT ''::pg_catalog.void
$madlib$;

CREATE OR REPLACE FUNCTION madlib.madlib_keras_automl(
    source_table varchar,
    model_output_table varchar,
    model_arch_table varchar,
    model_selection_table varchar,
    model_id_list integer[],
    compile_params_grid varchar,
    fit_params_grid varchar,
    automl_method varchar DEFAULT 'hyperband',
    automl_params varchar DEFAULT NULL,
    random_state integer DEFAULT NULL,
    object_table varchar DEFAULT NULL,
    use_gpus boolean DEFAULT false,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    name varchar DEFAULT NULL,
    description varchar DEFAULT NULL,
    use_caching boolean DEFAULT true
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_search($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);
    SELECT ''::pg_catalog.void
$madlib$;

CREATE OR REPLACE FUNCTION madlib.hyperband_schedule(
    schedule_table varchar,
    r integer,
    eta integer DEFAULT 3,
    skip_last integer DEFAULT 0
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_hyperband_schedule($1, $2, $3, $4)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.madlib_keras_evaluate(
    model_table varchar,
    test_table varchar,
    output_table varchar,
    use_gpus boolean DEFAULT false,
    mst_key integer DEFAULT NULL
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_evaluate($1, $2, $3, $4, $5)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.gpu_configuration(
    output_table text,
    source text DEFAULT NULL
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_gpu_configuration($1, $2)
$madlib$;

-- What is wanted of a prediction is a word, or a number of classes, or a probability.
{%- for type, default, ours in [('varchar', " DEFAULT 'prob'", 'text'), ('integer', '', 'float8'), ('float8', '', 'float8')] %}
CREATE OR REPLACE FUNCTION madlib.madlib_keras_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type {{ type }}{{ default }},
    use_gpus boolean DEFAULT false,
    mst_key integer DEFAULT NULL
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_predict($1, $2, $3, $4, $5, $6::{{ ours }}, $7, $8);
    SELECT ''::pg_catalog.void
$madlib$;

CREATE OR REPLACE FUNCTION madlib.madlib_keras_predict_byom(
    model_arch_table varchar,
    model_id integer,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type {{ type }}{{ default }},
    use_gpus boolean DEFAULT NULL,
    class_values text[] DEFAULT NULL,
    normalizing_const float8 DEFAULT NULL,
    dependent_count integer DEFAULT 1
) RETURNS void LANGUAGE sql AS $madlib$
    SELECT cerebro.cerebro_predict_byom($1, $2, $3, $4, $5, $6, $7::{{ ours }}, $8, $9, coalesce($10, 1.0), $11)
$madlib$;
{% endfor %}
CREATE OR REPLACE FUNCTION madlib.convert_bytea_to_real_array(var bytea) RETURNS real[] LANGUAGE sql IMMUTABLE AS $madlib$
    SELECT cerebro.cerebro_convert_bytea_to_real_array($1)
$madlib$;

CREATE OR REPLACE FUNCTION madlib.convert_bytea_to_integer_array(var bytea) RETURNS integer[] LANGUAGE sql IMMUTABLE AS $madlib$
    SELECT cerebro.cerebro_convert_bytea_to_integer_array($1)
$madlib$;

-- MADlib's functions tell their usage when they are called with a word, or with nothing.
DO $$
DECLARE
    function record;
BEGIN
    FOR function IN
        SELECT p.oid::regprocedure AS signature, p.proname AS name, p.pronargs > 2 AS has_usage,
               substring(p.prosrc FROM 'cerebro\.\w+') AS called
          FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname = 'madlib' AND p.prosrc LIKE '%SELECT cerebro.%'
    LOOP
        EXECUTE format('COMMENT ON FUNCTION %s IS %L', function.signature, 'MADlib''s name of ' || function.called || '.');
        IF function.has_usage THEN
            EXECUTE format('CREATE OR REPLACE FUNCTION madlib.%I(message varchar DEFAULT '''') RETURNS varchar LANGUAGE sql AS %L',
                           function.name, format('SELECT %L::varchar', format('madlib.%s calls %s; docs/coming-from-madlib.md tells every difference',
                                                 function.name, function.called)));
        END IF;
    END LOOP;
END
$$;
{%- endif %}
