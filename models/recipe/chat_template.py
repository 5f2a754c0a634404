"""The chat template that travels in the GGUF: ChatML turns, Hermes-style tools, optional thinking.

``messages`` are OpenAI-shaped; ``tools`` is the request's list or none; ``enable_thinking`` (default false) asks for
a ``<think>`` block before the answer. :mod:`models.recipe.corpus.conversation` renders the same text in Python; a test
holds the two together.
"""

from __future__ import annotations

TOOLS_HEADER = "You can call these functions:\n<tools>\n"
TOOLS_FOOTER = '</tools>\nTo call one, write <tool_call>{"name": ..., "arguments": ...}</tool_call>.'
THINK_LINE = "Think first."

CHAT_TEMPLATE = (
    r"""
{%- macro text_of(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content -%}
        {%- for part in content -%}
            {%- if part.type == 'text' -%}{{- part.text -}}{%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set thinking = enable_thinking is defined and enable_thinking -%}
{%- set with_system = messages and messages[0].role in ['system', 'developer'] -%}
{%- if with_system or tools or thinking -%}
    {{- '<|im_start|>system\n' -}}
    {%- set gap = '' -%}
    {%- if with_system -%}
        {{- text_of(messages[0].content) -}}
        {%- set gap = '\n\n' -%}
    {%- endif -%}
    {%- if tools -%}
        {{- gap + 'TOOLS_HEADER' -}}
        {%- for tool in tools -%}
            {{- tool | tojson -}}{{- '\n' -}}
        {%- endfor -%}
        {{- 'TOOLS_FOOTER' -}}
        {%- set gap = '\n\n' -%}
    {%- endif -%}
    {%- if thinking -%}
        {{- gap + 'THINK_LINE' -}}
    {%- endif -%}
    {{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {%- set content = text_of(message.content) -%}
        {%- if '</think>' in content -%}
            {%- set content = content.split('</think>')[-1].lstrip('\n') -%}
        {%- endif -%}
        {{- '<|im_start|>assistant\n' + content -}}
        {%- for call in message.tool_calls or [] -%}
            {%- if content or not loop.first -%}{{- '\n' -}}{%- endif -%}
            {%- set function = call.function or call -%}
            {{- '<tool_call>{"name": ' + function.name | tojson + ', "arguments": ' -}}
            {%- if function.arguments is string -%}
                {{- function.arguments -}}
            {%- else -%}
                {{- function.arguments | tojson -}}
            {%- endif -%}
            {{- '}</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>\n' -}}
    {%- elif message.role == 'tool' -%}
        {{- '<|im_start|>tool\n' + text_of(message.content) + '<|im_end|>\n' -}}
    {%- elif not (loop.first and with_system) -%}
        {{- '<|im_start|>' + message.role + '\n' + text_of(message.content) + '<|im_end|>\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
""".strip()
    .replace("TOOLS_HEADER", TOOLS_HEADER.replace("\n", r"\n"))
    .replace("TOOLS_FOOTER", TOOLS_FOOTER.replace("\n", r"\n"))
    .replace("THINK_LINE", THINK_LINE)
)
