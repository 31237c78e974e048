return relay.driver("hosts.gpu_configuration", output_table, source, replace)
