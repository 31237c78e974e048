"""One job over sessions, for drivers and for client processes alike."""
