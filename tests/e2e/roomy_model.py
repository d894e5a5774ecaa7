"""The small model with room for a coding client's prompt, as far as its file says.

Trained for 8192 tokens, it says nothing sensible beyond them; what is shown with it is that a
prompt of that size goes through. Its own chat template leaves tools out, and this one does not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_TEMPLATE = """\
{%- set first = messages[0] %}
{%- set turns = messages[1:] if first.role == 'system' else messages %}
{{- '<|im_start|>system\\n' }}
{%- if first.role == 'system' %}{{ first.content }}{% endif %}
{%- if tools %}
{{- '\\n\\nYou may call these functions:\\n<tools>\\n' }}
{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}
{{- '</tools>\\nCall one with <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>' }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- for turn in turns %}
{{- '<|im_start|>' + ('user' if turn.role == 'tool' else turn.role) + '\\n' }}
{%- if turn.content %}{{ turn.content }}{% endif %}
{%- for call in turn.tool_calls or [] %}
{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""


def make(model: Path, to: Path, context: int) -> Path:
    """A copy of the GGUF file `model` with this context and a template that renders tools."""
    scripts = [sys.executable, "-m"]
    new = [*scripts, "gguf.scripts.gguf_new_metadata", "--force", "--chat-template", _TEMPLATE]
    subprocess.run([*new, str(model), str(to)], check=True, capture_output=True)
    change = [*scripts, "gguf.scripts.gguf_set_metadata", "--force", str(to)]
    subprocess.run([*change, "llama.context_length", str(context)], check=True, capture_output=True)
    return to
