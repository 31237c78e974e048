"""What a run does next, as functions of its state: these decide, they never act."""
