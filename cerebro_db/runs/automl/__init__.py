"""From a table to a registered model: what is read of the table, what is planned, and the statements that are made."""
