"""What to ask of a server, in words that it takes.

The OpenAI API says less than a measurement needs: an exact number of output tokens (``ignore_eos``), how many tokens
each chunk holds (usage with every chunk, or the token ids), prompts as token ids. Servers differ in which of these
they know, and some refuse what they do not know. So the richest request is tried first, and less is asked until the
server takes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Dialect", "ladder", "words_for"]

#: Short common words: with a space in front each is one token of nearly every tokenizer in use.
_WORDS = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work government number night point
home water room mother area money story fact month lot right study book eye job word business issue
side kind head house service friend father power hour game line end member law car city name team
minute idea body information back parent face others level office door health person art war history
party result change morning reason research girl moment air teacher force education
""".split()  # noqa: SIM905  # a hundred quoted words are no list to read


@dataclass(frozen=True)
class Dialect:
    """One way to put a request.

    Attributes:
        endpoint: ``"completions"`` (the prompt is token ids) or ``"chat"`` (the prompt is a message of words).
        exact_length: Whether ``ignore_eos`` is asked for.
        usage: ``"each"`` chunk, at the ``"end"``, or ``None``: when the server is asked to count tokens.
        token_ids: Whether every chunk is asked to name its token ids (for servers that have no tokenizer, whose
            text is empty).
        limit: Name of the field with the number of output tokens.
        overhead: Tokens that a chat's template adds to the words, once known.
    """

    endpoint: str
    exact_length: bool = True
    usage: str | None = "each"
    token_ids: bool = False
    limit: str = "max_tokens"
    overhead: int = 0

    @property
    def path(self) -> str:
        """Below the server's base path."""
        return "/completions" if self.endpoint == "completions" else "/chat/completions"

    def body(self, model: str, prompt: tuple[int, ...], output_len: int, sampling: Mapping[str, Any]) -> bytes:
        """The request's JSON.

        Args:
            model: As the server names it.
            prompt: Token ids; for a chat they choose the words.
            output_len: Tokens to generate.
            sampling: Further sampling parameters; they do not override the length and the streaming.
        """
        fields: dict[str, Any] = {"model": model, "temperature": 0, **sampling}
        if self.endpoint == "completions":
            fields["prompt"] = list(prompt)
        else:
            fields["messages"] = [{"role": "user", "content": words_for(prompt, self.overhead)}]
        fields[self.limit] = output_len
        fields["stream"] = True
        if self.usage is not None:
            fields["stream_options"] = {"include_usage": True}
            if self.usage == "each":
                fields["stream_options"]["continuous_usage_stats"] = True
        if self.exact_length:
            fields["ignore_eos"] = True
        if self.token_ids:
            fields["return_token_ids"] = True
        return json.dumps(fields, allow_nan=False, separators=(",", ":")).encode()

    @property
    def described(self) -> str:
        """For the record."""
        asked = [
            *(["ignore_eos"] if self.exact_length else []),
            *(["usage with each chunk"] if self.usage == "each" else ["usage"] if self.usage else []),
            *(["token ids"] if self.token_ids else []),
        ]
        return f"{self.endpoint} ({', '.join(asked) or 'nothing beyond the API'})"


def ladder(endpoint: str | None) -> Iterator[Dialect]:
    """Dialects to try, the richest first.

    Args:
        endpoint: The one that the URL names; ``None``: completions first, then chat.
    """
    for name in (endpoint,) if endpoint else ("completions", "chat"):
        full = Dialect(name)
        yield full
        yield replace(full, usage="end")
        yield replace(full, exact_length=False)
        yield replace(full, exact_length=False, usage="end")
        yield replace(full, exact_length=False, usage="end", limit="max_completion_tokens")
        yield replace(full, exact_length=False, usage=None)


def words_for(prompt: tuple[int, ...], overhead: int) -> str:
    """Words of about as many tokens as the prompt has, less what the chat template adds; equal for equal prompts."""
    kept = prompt[: max(1, len(prompt) - overhead)]
    # Two words of the list tell ids apart that differ in either remainder.
    return " ".join(_WORDS[(token * 7919 + token // len(_WORDS)) % len(_WORDS)] for token in kept)
