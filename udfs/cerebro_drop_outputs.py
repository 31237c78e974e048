return relay.driver("results.drop_outputs_of", output_table)
