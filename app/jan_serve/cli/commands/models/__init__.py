"""Commands on the models of this machine: their files, and what is in memory."""
