-- Functions of installed packages, and expressions, that administrators let everyone use.

CREATE OR REPLACE FUNCTION cerebro.cerebro_register_function(name text, path text)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_register_function') }};
COMMENT ON FUNCTION cerebro.cerebro_register_function(text, text) IS
'Lets custom.name mean a function of an installed Python package, package.module:function, as loss, metric or schedule of a LearningRateScheduler. For members of cerebro_admin.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_register_expression(name text, expression text)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_register_expression') }};
COMMENT ON FUNCTION cerebro.cerebro_register_expression(text, text) IS
'Lets custom.name mean an expression: of y_true and y_pred as loss or metric, of x as activation. It is parsed and checked, and never run as code. For members of cerebro_admin.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_unregister_function(name text)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_unregister_function') }};
COMMENT ON FUNCTION cerebro.cerebro_unregister_function(text) IS
'Takes back what cerebro_register_function or cerebro_register_expression did. For members of cerebro_admin.';

-- MADlib's lists of custom functions: of names, whose functions are registered here.
CREATE OR REPLACE FUNCTION cerebro.cerebro_load_custom_function(
    object_table text,
    object bytea,
    name text,
    description text DEFAULT NULL
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_load_custom_function') }};
COMMENT ON FUNCTION cerebro.cerebro_load_custom_function(text, bytea, text, text) IS
'Adds a name to an object table (id, name, description, object), which is made if it is not there: with object_table in a call, the name in its parameters means the function that is registered as custom.name. object, the pickled function of MADlib, is neither read nor kept.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_load_top_k_accuracy_function(object_table text, k integer)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_load_top_k_accuracy_function') }};
COMMENT ON FUNCTION cerebro.cerebro_load_top_k_accuracy_function(text, integer) IS
'Adds the name top_k_accuracy to an object table, which is made if it is not there. The metric is built in, for any k, and needs no object table.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_delete_custom_function(object_table text, id integer)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_delete_custom_function_id') }};
COMMENT ON FUNCTION cerebro.cerebro_delete_custom_function(text, integer) IS
'Deletes a function from an object table, and the table with its last one.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_delete_custom_function(object_table text, name text)
RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_delete_custom_function') }};
COMMENT ON FUNCTION cerebro.cerebro_delete_custom_function(text, text) IS
'The same by the name of the function.';
