relay.know(functions)
