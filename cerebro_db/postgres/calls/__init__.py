"""What a call of a user needs: settings of its session, sessions for its control, slots of workers."""
