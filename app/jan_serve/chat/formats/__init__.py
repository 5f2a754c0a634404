"""The answer formats of model families, one file each: signature, parser and call layout. `detect` lists them."""
