"""Generates the corpus: one module per skill, our own templates and word lists, nothing downloaded."""
