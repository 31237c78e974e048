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
