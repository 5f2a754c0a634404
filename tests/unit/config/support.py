"""A configuration file with tables of models."""

from __future__ import annotations

WHOLE = """\
n_ctx = 4096
type_k = "q8_0"
parallel = 3

[models."org/repo/Model-Q4"]
n_ctx = 512
n_gpu_layers = 7
ttl_s = -1
aliases = ["gpt-4o", "local"]
template = "mine.jinja"
pin = true
group = "large"

[models."org/repo/Model-Q4".sampling]
temperature = 0.5
top_k = 20
max_tokens = 99
stop = ["</s>"]

[[models."org/repo/Model-Q4".lora]]
name = "sql"
file = "adapters/sql.gguf"

[[models."org/repo/Model-Q4".lora]]
name = "poet"
file = "poet.gguf"
scale = 0.5

[models.other]
template = "chatml"
"""
