"""Messages between the front and its child processes, their encoding, and both ends of the pipes."""
