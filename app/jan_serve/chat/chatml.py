"""ChatML, the template for models without one: most GGUF files without a template were tuned on it.

`<|im_start|>ROLE\\nTEXT<|im_end|>\\n` for every turn, then `<|im_start|>assistant\\n`. It shows no tools.
"""

from __future__ import annotations

from typing import Final

CHATML: Final = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
