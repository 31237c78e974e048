return relay.driver("settings.gpu_configuration", output_table, source, replace)
