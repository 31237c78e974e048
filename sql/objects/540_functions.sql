-- Functions of installed packages, and expressions, that administrators let everyone use.

{{ function('cerebro_register_function') }}

{{ function('cerebro_register_expression') }}

{{ function('cerebro_unregister_function') }}
