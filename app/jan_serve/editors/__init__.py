"""Settings that connect editors and other programs to this server.
facts: the server and its models. recipes: the settings and steps of each program. jsonc, toml_file, yaml_file,
cline_file: set values in a text and keep the rest of it. Pure: the command reads and writes the files."""
