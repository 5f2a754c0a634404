"""Model management: routes and values follow llama-server's router where it has them."""
