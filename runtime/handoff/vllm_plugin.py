"""Makes vLLM refuse a draft that it would run as something else, by our rule, before it loads.

vLLM finds `register` by the entry point group `vllm.general_plugins` and calls it in each of its
processes. From then on every `SpeculativeConfig` that concerns a block draft is held against the
routing table and against what is known of this version of vLLM; every other method is left alone.
`VLLM_PLUGINS` without `dspark` switches it off.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspark

_LOG = logging.getLogger("vllm.dspark")  # below vLLM's own logger, whose handler prints it
_MARK = "_dspark_checked"

BLOCK_METHODS = frozenset({"dspark", "dflash"})


class DraftRefused(ValueError):
    """Why a draft is refused. vLLM reports a ValueError as a mistake in what was asked of it."""

    def __init__(self, refusal: dspark.Refused) -> None:
        self.decision = decision = refusal.decision
        help_text = decision.refusal.help if decision.refusal is not None else ""
        routed = f"routed by {decision.rule.id}, table {decision.table_version}"
        super().__init__(f"{refusal}; help: {help_text} ({routed})")


def register() -> None:
    """Wraps the making of `SpeculativeConfig`, once; only warns for a vLLM that is not known."""
    import vllm
    from vllm.config import SpeculativeConfig

    warning = dspark.engine_warning(vllm.__version__)
    if warning is not None:
        label = f"{warning.rule_id} {warning.name}"
        _LOG.warning("%s: %s; help: %s", label, warning.message, warning.help)
        return
    original = SpeculativeConfig.__post_init__
    if not hasattr(original, _MARK):
        SpeculativeConfig.__post_init__ = _checked(original)


def _checked(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def post_init(config: Any) -> Any:
        asked = config.method
        pair = _Pair(config)
        if asked in BLOCK_METHODS:
            # Before vLLM looks: it would name an architecture that it made up.
            pair.refuse(asked, config.num_speculative_tokens)
        try:
            made = original(config)
        except Exception:
            if asked is None and config.method != "draft_model":
                pair.refuse(config.method, config.num_speculative_tokens)
            raise
        if asked in BLOCK_METHODS or asked is None:
            pair.refuse(config.method, config.num_speculative_tokens)
        return made

    setattr(post_init, _MARK, True)
    return post_init


class _Pair:
    """The draft and the target of a speculative config, as they were given."""

    def __init__(self, config: Any) -> None:
        target = config.target_model_config
        self.target = None if target is None else _source(target.model, target.revision)
        self.draft = None if config.model is None else _source(config.model, config.revision)
        self.tokens = config.num_speculative_tokens

    def refuse(self, method: str, tokens: int | None) -> None:
        """Raises `DraftRefused` if the pair is not to be run with this method and number."""
        blocks = method in BLOCK_METHODS
        # Whatever else a method means, vLLM runs it as if this were not installed; so nothing is
        # fetched for it, and no reading of ours can fail.
        if not (blocks or (self.draft and Path(self.draft).exists())):
            return
        answer = self.answer
        if isinstance(answer, dspark.HandOff) and BLOCK_METHODS & {method, answer.method}:
            try:
                answer.confirm(method, tokens or answer.num_speculative_tokens)
            except dspark.Refused as refusal:
                raise DraftRefused(refusal) from None
        elif isinstance(answer, dspark.Refused) and (
            blocks or dspark.drafts_in_blocks(answer.decision)
        ):
            raise DraftRefused(answer)

    @functools.cached_property
    def answer(self) -> dspark.HandOff | dspark.Refused | None:
        """How the pair is served, or why it is not; None where it could not be looked at."""
        if self.target is None:
            return None
        draft, target = (self.target, None) if self.draft is None else (self.draft, self.target)
        try:
            return dspark.hand_off(draft, target=target, num_speculative_tokens=self.tokens)
        except dspark.Refused as refusal:
            decision = refusal.decision
            # What is not on this disk may be where only vLLM can read it.
            if decision.stage == "observe" and not Path(decision.source).exists():
                _LOG.warning("the draft was not judged: %s", refusal)
                return None
            return refusal


def _source(model: str, revision: str | None) -> str:
    return model if revision is None or Path(model).exists() else f"{model}@{revision}"
