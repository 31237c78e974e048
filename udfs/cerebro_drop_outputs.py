return relay.driver("outputs.drop", output_table)
