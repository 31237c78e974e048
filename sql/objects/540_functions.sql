-- Functions of installed packages, and expressions, that administrators let everyone use.

{{ function('cerebro_register_function') }}

{{ function('cerebro_register_expression') }}

{{ function('cerebro_unregister_function') }}

{{ function('cerebro_load_custom_function') }}

{{ function('cerebro_load_top_k_accuracy_function') }}

{{ function('cerebro_delete_custom_function') }}
