"""Settings that connect editors and other programs to this server.
recipe: the server and its models, and what a recipe is. recipes, agent_recipes, ollama_recipes: the settings and steps
of each program. launches: how to start some of them. merging: sets values in a text and keeps the rest of it. Pure: the
command reads and writes the files."""
