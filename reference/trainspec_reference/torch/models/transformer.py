"""Writes the transformer: causal, norm first, one table for input and output, dense or with a mixture of experts."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from trainspec_reference.common.job import ModelShape
from trainspec_reference.torch.models.blocks import Keep, LayerNorm, empty, keep_all
from trainspec_reference.torch.parallel import ContextSplit, ExpertSplit
from trainspec_reference.torch.parts import Part


class Experts(nn.Module):
    """The router, which every rank holds whole, and the experts of this rank.

    A token visits the experts of the highest probability, which weighs what they answer, so that the router learns from
    one expert as well (arXiv:2101.03961). There is no capacity, and no loss that balances the experts: a loss is the
    same on any number of expert ranks.
    """

    def __init__(self, shape: ModelShape, part: Part) -> None:
        super().__init__()
        self.num_experts, self.num_active = shape.num_experts, shape.num_active_experts
        num_own, hidden, inner = shape.num_experts // part.expert_degree, shape.hidden_size, shape.ffn_hidden_size
        self.router = empty(hidden, shape.num_experts)
        self.expert_up, self.expert_down = empty(num_own, hidden, inner), empty(num_own, inner, hidden)
        self.split = ExpertSplit()

    def forward(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] to [B, T, D]."""
        tokens_ND = hidden_BTD.flatten(0, 1)
        weights_NA, chosen_NA = self._probabilities(tokens_ND).topk(self.num_active)
        visits_S = chosen_NA.flatten()
        order_S = visits_S.argsort(stable=True)
        rows_SD = tokens_ND[order_S // self.num_active]
        answers_SD = self.split.visit(rows_SD, visits_S.bincount(minlength=self.num_experts), self._compute)
        answers_NAD = answers_SD[order_S.argsort()].view(*chosen_NA.shape, -1)
        return (answers_NAD * weights_NA[..., None].to(answers_NAD.dtype)).sum(1).view_as(hidden_BTD)

    def _probabilities(self, tokens_ND: torch.Tensor) -> torch.Tensor:
        """Of each expert for each token, in fp32 at least: close ones decide which expert a token visits."""
        dtype = torch.promote_types(tokens_ND.dtype, torch.float32)
        with torch.autocast(tokens_ND.device.type, enabled=False):
            return torch.softmax(tokens_ND.to(dtype) @ self.router.to(dtype), -1)

    def _compute(self, rows_MD: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        own = zip(torch.split(rows_MD, list(sizes)), self.expert_up, self.expert_down, strict=True)
        return torch.cat([F.gelu(rows_mD @ up, approximate="tanh") @ down for rows_mD, up, down in own])


Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def causal_attention(q_BHTK: torch.Tensor, k_BHTK: torch.Tensor, v_BHTK: torch.Tensor) -> torch.Tensor:
    """Attention in one kernel, the best that the library has for the device."""
    return F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)


class Attention(nn.Module):
    """Heads of one tensor rank: columns of queries, keys and values, and the rows of the output that follow."""

    def __init__(self, shape: ModelShape, part: Part) -> None:
        super().__init__()
        if shape.num_heads % part.tensor_degree:
            raise ValueError(f"{part.tensor_degree} tensor ranks do not divide {shape.num_heads} heads")
        self.num_heads, self.split = shape.num_heads // part.tensor_degree, part.split
        width = shape.hidden_size // part.tensor_degree
        self.qkv, self.output = empty(shape.hidden_size, 3, width), empty(width, shape.hidden_size)
        self.attend: Attend = causal_attention

    def forward(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] to [B, T, D]."""
        qkv_BTW = self.split.enter(hidden_BTD) @ self.qkv.flatten(1)
        heads = qkv_BTW.view(*qkv_BTW.shape[:2], 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        mixed_BHTK = self.attend(heads[0], heads[1], heads[2])
        return self.split.leave(mixed_BHTK.transpose(1, 2).flatten(2) @ self.output)


class FeedForward(nn.Module):
    """Inner units of one tensor rank."""

    def __init__(self, shape: ModelShape, part: Part) -> None:
        super().__init__()
        if shape.ffn_hidden_size % part.tensor_degree:
            raise ValueError(f"{part.tensor_degree} tensor ranks do not divide {shape.ffn_hidden_size} inner units")
        inner, self.split = shape.ffn_hidden_size // part.tensor_degree, part.split
        self.up, self.down = empty(shape.hidden_size, inner), empty(inner, shape.hidden_size)

    def forward(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] to [B, T, D]."""
        inner_BTF = F.gelu(self.split.enter(hidden_BTD) @ self.up, approximate="tanh")
        return self.split.leave(inner_BTF @ self.down)


class TransformerBlock(nn.Module):
    """Attention and feed-forward, each behind a norm and with a residual connection."""

    def __init__(self, shape: ModelShape, part: Part) -> None:
        super().__init__()
        self.dropout = shape.dropout
        width, shared = shape.hidden_size, part.split.shared
        self.attention_norm, self.attention = LayerNorm(width, shared), Attention(shape, part)
        self.ffn_norm = LayerNorm(width, shared)
        self.ffn = Experts(shape, part) if shape.num_experts else FeedForward(shape, part)

    def forward(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] to [B, T, D]."""
        hidden_BTD = hidden_BTD + self._drop(self.attention(self.attention_norm(hidden_BTD)))
        return hidden_BTD + self._drop(self.ffn(self.ffn_norm(hidden_BTD)))

    def _drop(self, branch_BTD: torch.Tensor) -> torch.Tensor:
        return F.dropout(branch_BTD, self.dropout, self.training)


class TransformerModel(nn.Module):
    """The layers of one stage; the first stage has the embeddings, the last one the norm and the head."""

    def __init__(self, shape: ModelShape, part: Part) -> None:
        super().__init__()
        self.part, self.keep, self.context = part, keep_all, ContextSplit()
        if part.is_first or part.is_last:
            self.token_embedding = empty(shape.vocabulary_size, shape.hidden_size)
        if part.is_first:
            self.position_embedding = empty(shape.sequence_length, shape.hidden_size)
        self.layers = nn.ModuleDict({str(at): TransformerBlock(shape, part) for at in part.layers(shape.num_layers)})
        if part.is_last:
            self.final_norm = LayerNorm(shape.hidden_size)

    keep: Keep

    def connect(self, context: ContextSplit, experts: ExpertSplit) -> None:
        """Take positions, keys and experts as these ranks share them from now on."""
        self.context = context
        for module in self.modules():
            if isinstance(module, Experts):
                module.split = experts
            if isinstance(module, Attention):
                module.attend = context.attend if context.degree > 1 else causal_attention

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Tokens [B, T], or the hidden [B, T, D] of the stage before, to logits [B, T, V], or hidden [B, T, D]."""
        hidden_BTD = inputs
        self.context.prepare(inputs.shape[1])
        if self.part.is_first:
            hidden_BTD = F.embedding(inputs, self.token_embedding) + self.context.rows(
                self.position_embedding, inputs.shape[1]
            )
        hidden_BTD = self.part.split.begin(hidden_BTD)
        for block in self.layers.values():
            hidden_BTD = self.keep(block, hidden_BTD)
        hidden_BTD = self.part.split.end(hidden_BTD, inputs.shape[1])
        if not self.part.is_last:
            return hidden_BTD
        return F.linear(self.final_norm(hidden_BTD), self.token_embedding)
