"""The helper process that decodes images, which come from untrusted requests. The only importer of Pillow."""
