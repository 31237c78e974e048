"""Tables of users, and those that a call makes: names are resolved, kinds told apart, earlier outputs replaced, packed tables read."""
