"""A server's place at a proxy: registers, renews, withdraws."""
