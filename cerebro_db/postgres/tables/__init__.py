"""Tables of users, and those that a call makes: names are resolved, kinds distinguished, earlier outputs replaced, packed tables read."""
