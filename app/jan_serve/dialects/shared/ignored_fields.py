"""Fields of a request that the server ignores, and of which its client should know.

Names that other servers honour, and misspelt names. Other unknown fields are ignored in silence: clients send those of
newer versions with every request.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

from jan_serve.dialects.shared.thinking_fields import THINKING_NAMES
from jan_serve.http.json_body import KnownFields

logger: Final = logging.getLogger("jan_serve.fields")

_NOTHING: Final[tuple[Any, ...]] = (None, False, 0, "", [], {})
_NOT_HONOURED: Final[dict[str, tuple[Any, ...]]] = {
    **dict.fromkeys(
        (
            *"dry_multiplier dynatemp_range min_keep n_indent n_keep n_probs post_sampling_probs".split(),
            *"reasoning_in_content response_fields samplers t_max_predict_ms top_a".split(),
            *"chat_template custom_logit_processor echo include_stop_str_in_output length_penalty".split(),
            *"logits_processors lora_path max_new_tokens min_new_tokens mm_processor_kwargs".split(),
            *"n_predict no_stop_trim num_predict prompt_logprobs repetition_detection return_hidden_states".split(),
            *"return_token_ids return_tokens_as_token_ids session_params stop_regex stop_token_ids".split(),
            *"truncate_prompt_tokens use_beam_search".split(),
            *"audio max_completion_tokens prediction reasoning.exclude top_logprobs".split(),
            *"verbosity watermark web_search_options".split(),
            *"fallbacks models plugins provider route transforms".split(),
            *"allowed_token_ids bad_words frequency_penalty ignore_eos logit_bias logprobs lora".split(),
            *"min_p min_tokens mirostat mirostat_mode presence_penalty stop stop_sequences stop_words".split(),
            *"ebnf grammar grammar_string guided_choice guided_grammar guided_json guided_regex".split(),
            *"json_schema regex structural_tag structured_outputs".split(),
            *"chat_template_kwargs functions instructions suffix system template tools".split(),
        ),
        _NOTHING,
    ),
    **dict.fromkeys(("include_reasoning", "parallel_tool_calls", "separate_reasoning"), (None, True)),
    **dict.fromkeys(("parse_tool_calls", "stream_reasoning"), (None, True)),
    **dict.fromkeys((*THINKING_NAMES, "reasoning_effort"), (None, -1, {})),
    **dict.fromkeys(("max_output_tokens", "max_tokens", "random_seed", "seed", "top_k"), (None, -1)),
    **dict.fromkeys(("num_ctx", "temperature", "think"), (None,)),
    **dict.fromkeys(
        ("options.num_ctx", "options.num_predict", "options.seed", "options.temperature"), (None,)
    ),
    "adaptive_target": (*_NOTHING, -1),
    "best_of": (*_NOTHING, 1),
    "cache_prompt": (*_NOTHING[2:], None, True),
    "id_slot": (None, -1),
    "modalities": (*_NOTHING, ["text"]),
    "n": (*_NOTHING, 1),
    "repeat_last_n": (None, 64),
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "auto", {"type": "auto"}),
    "repeat_penalty": (None, 0, 1),
    "repetition_penalty": (None, 0, 1),
    "skip_special_tokens": (None, True),
    "top_n_sigma": (*_NOTHING, -1),
    "top_p": (None, 1),
    "typical_p": (None, 0, 1),
    "xtc_probability": _NOTHING,
}
"""Fields of any dialect and of vLLM, SGLang and OpenRouter that change an answer, with the values that do not."""

_SILENT: Final = frozenset(
    ("metadata", "prompt_cache_key", "safety_identifier", "service_tier", "speed", "store", "user")
)
"""Fields of these servers that change no text."""

_LIKENESS: Final = 0.85
_SHORTEST: Final = 4
_MOST_CHARS: Final = 40
_MOST_MEMBERS: Final = 128
"""Members of an object that are looked at; no honest one has more."""
_MOST_LOGGED: Final = 256
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class IgnoredFields:
    """Writes each warning to the log once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def warnings(self, body: Mapping[str, Any], known: KnownFields) -> tuple[str, ...]:
        """Warnings of one body, by the fields of its route."""
        found = tuple(_warnings(body, known))
        for warning in found:
            if warning not in self._logged and len(self._logged) < _MOST_LOGGED:
                self._logged.add(warning)
                logger.warning("%s (said once)", warning)
        return found


def _warnings(members: Mapping[str, Any], known: KnownFields, place: str = "") -> Iterator[str]:
    for name, value in islice(members.items(), _MOST_MEMBERS):
        inner = known.get(name)
        if name not in known:
            warning = _warning(name, value, known)
            if warning is not None:
                yield place + warning
        if inner is not None and isinstance(value, dict):
            yield from _warnings(cast(dict[str, Any], value), inner, f"{place}{name}: ")
        elif isinstance(value, dict):
            named = {f"{name}.{member}": each for member, each in cast(dict[str, Any], value).items()}
            yield from _warnings({path: each for path, each in named.items() if path in _NOT_HONOURED}, {})


def _warning(name: str, value: Any, known: KnownFields) -> str | None:
    if name in _SILENT:
        return None
    if name in _NOT_HONOURED:
        changes_nothing = any(
            value == each and isinstance(value, bool) == isinstance(each, bool)
            for each in _NOT_HONOURED[name]
        )
        return None if changes_nothing else f"{name}: not honoured by this route, and left out"
    if not _SHORTEST <= len(name) <= _MOST_CHARS:
        return None
    plain = _HUMP.sub("_", name).lower().replace("-", "_")
    close = difflib.get_close_matches(plain, known, n=1, cutoff=_LIKENESS)
    return f"{name!a}: no field of this route, and left out; did you mean {close[0]}?" if close else None
