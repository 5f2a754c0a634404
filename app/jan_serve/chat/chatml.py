"""ChatML, the template for models without one: most GGUF files without a template were tuned on it.

`<|im_start|>ROLE\\nTEXT<|im_end|>\\n` for every turn, then `<|im_start|>assistant\\n`. It shows no tools.
A model that was not tuned on it has no token for the end of a turn, and writes it as text.
"""

from __future__ import annotations

from typing import Final

CHATML_TURN_END: Final = "<|im_end|>"

CHATML: Final = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
