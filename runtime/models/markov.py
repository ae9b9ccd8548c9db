"""The sequential head of a DSpark draft: a low-rank bias from each token to the next.

All three kinds look the previous token up in a table, turn it into a latent vector, and add a
linear map of that to the block's own logits. Tokens come in as target ids; the bias is over the
draft's vocabulary.
"""

from __future__ import annotations

from typing import Protocol

from dspark.runtime.backends.base import Array, HostWalk
from dspark.runtime.models.config import DraftConfig
from dspark.runtime.models.weights import Weights


class MarkovHead(Protocol):
    """How the token before a slot changes what is likely in it.

    `embedded` [R, r] are the previous tokens' rows of the table, `hidden` [R, H] the slot's hidden
    states, and `state` what the step before returned, None at the first slot of a block.
    """

    def step(
        self, embedded: Array, hidden: Array, state: Array | None
    ) -> tuple[Array, Array | None]:
        """The latent vectors [R, r] and the state for the next slot."""
        ...


class VanillaHead:
    """The latent vector is the table's row itself."""

    def step(
        self,
        embedded: Array,
        hidden: Array,  # noqa: ARG002 - the protocol's
        state: Array | None,
    ) -> tuple[Array, Array | None]:
        return embedded, state


class GatedHead:
    """The table's row, each component let through as far as the slot's hidden state says."""

    def __init__(self, backend: HostWalk, config: DraftConfig, weights: Weights) -> None:
        self._backend = backend
        rank, width = config.markov_rank, config.hidden_size + config.markov_rank
        self.gate = backend.prepare_linear(
            [weights.take("markov_head.gate_proj.weight", rank, width)],
            [weights.take("markov_head.gate_proj.bias", rank)],
        )

    def step(
        self, embedded: Array, hidden: Array, state: Array | None
    ) -> tuple[Array, Array | None]:
        backend = self._backend
        gate = backend.linear(backend.concat([hidden, embedded]), self.gate)
        return embedded * backend.sigmoid(gate), state


class RecurrentHead:
    """A gated recurrent cell that starts each block from zero and remembers the tokens so far."""

    def __init__(self, backend: HostWalk, config: DraftConfig, weights: Weights) -> None:
        self._backend = backend
        self._rank = rank = config.markov_rank
        width = 2 * rank + config.hidden_size
        self.joint = backend.prepare_linear(
            [weights.take("markov_head.joint_proj.weight", 3 * rank, width)],
            [weights.take("markov_head.joint_proj.bias", 3 * rank)],
        )

    def step(
        self, embedded: Array, hidden: Array, state: Array | None
    ) -> tuple[Array, Array | None]:
        backend, rank = self._backend, self._rank
        before = embedded * 0.0 if state is None else state
        joint = backend.linear(backend.concat([before, embedded, hidden]), self.joint)
        kept = backend.sigmoid(joint[:, :rank])
        new = backend.tanh(joint[:, rank : 2 * rank])
        # The output is read off the state before this slot's token entered it.
        latent = backend.tanh(joint[:, 2 * rank :])
        return latent, kept * before + (kept * -1.0 + 1.0) * new


def markov_head(backend: HostWalk, config: DraftConfig, weights: Weights) -> MarkovHead:
    """The head of `config.markov_head_type`, which is not `none`."""
    if config.markov_head_type == "vanilla":
        return VanillaHead()
    if config.markov_head_type == "gated":
        return GatedHead(backend, config, weights)
    # INVARIANT: the configuration ruled out a rank without a head, and knows no fourth kind.
    assert config.markov_head_type == "rnn"
    return RecurrentHead(backend, config, weights)
