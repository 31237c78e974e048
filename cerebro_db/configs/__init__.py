"""Values that users hand in: grids, parameters, architectures; parsed and validated, never evaluated."""
