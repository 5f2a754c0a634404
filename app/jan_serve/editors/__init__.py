"""How editors and other programs are told about this server: their own settings, in their own files.

facts: what there is to tell. recipes: what each program needs. jsonc, toml_file, yaml_file: texts with the settings in
them and everything else as it was. Pure: files are read and written by the command.
"""
