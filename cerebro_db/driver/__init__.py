"""One job over sessions: what a backend and a client process do alike."""
