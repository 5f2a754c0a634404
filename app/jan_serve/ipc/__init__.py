"""What crosses between the front and a worker process: messages, their encoding, and the pipe's two ends."""
