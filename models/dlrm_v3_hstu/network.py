"""HSTU as a ranking model (Zhai et al., 2024, arXiv:2402.17152), in the form of MLPerf's DLRM-v3.

A user is a sequence: one token for the user, then the items of the history with the user's actions, then candidates,
whose actions are to be predicted. Layers of pointwise attention (SiLU instead of softmax) transduce the sequence. A
candidate attends to the user and the history, and not to other candidates. What comes out for a candidate is multiplied
with an embedding of its item, and an MLP gives the logit of the action.

Sequences are jagged: all tokens of all users stand in one row of vectors, so that layers other than attention work on
tokens only. PyTorch has no kernel for this attention over jagged sequences. Therefore users are sorted by their lengths
and attend in groups, which are padded to their longest user, and each block of queries meets the keys up to its end.

Shape letters: B users, C candidates of a user, L tokens of all users without those for users, J = L + B tokens with
them, G users of a group, N the most tokens of one of them, Q queries of a block, K keys that they meet, H heads, E
embedding size, A size of a head, F hidden size of MLPs.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .jagged import Groups, Jagged, prepend


@dataclass(frozen=True, kw_only=True)
class Config:
    layers: int = 5
    heads: int = 4
    head_size: int = 128
    width: int = 512
    hidden: int = 256  # of the MLPs that make the tokens
    item_hidden: int = 512  # of the MLPs for candidates
    candidates: int = 32
    longest_history: int = 2048
    shortest_history: int = 512
    groups: int = 8  # of users with like lengths
    query_block: int = 256
    items: int = 2_000_000
    users: int = 2_000_000
    categories: int = 128
    actions: int = 5  # kinds of actions: an item has any of them
    action_size: int = 8
    positions: int = 8192
    time_buckets: int = 2048  # of the square root of minutes
    input_dropout: float = 0.2
    dropout: float = 0.1

    @property
    def most_tokens(self) -> int:
        return 1 + self.longest_history + self.candidates

    def histories(self, users: int) -> list[int]:
        """The lengths of the histories in a batch, the shortest first: evenly from the shortest to the longest one."""
        span = self.longest_history - self.shortest_history
        return [self.shortest_history + span * (2 * user + 1) // (2 * users) for user in range(users)]

    def group_sizes(self, users: int) -> list[tuple[int, int]]:
        """The users of each group and the most tokens that one of them has."""
        ends = [group * users // self.groups for group in range(self.groups + 1)]
        most = [1 + history + self.candidates for history in self.histories(users)]
        return [(end - begin, most[end - 1]) for begin, end in pairwise(ends) if end > begin]


class Tables(nn.Module):
    """Embeddings of items, their categories and users. Their gradients are sparse."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.item = nn.Embedding(config.items, config.width, sparse=True)
        self.category = nn.Embedding(config.categories, config.width, sparse=True)
        self.user = nn.Embedding(config.users, config.width, sparse=True)
        for table in (self.item, self.user):
            nn.init.uniform_(table.weight, -(table.num_embeddings**-0.5), table.num_embeddings**-0.5)
        nn.init.uniform_(self.category.weight, -1.0, 1.0)


class HSTU(nn.Module):
    """The logits (B, C) of the candidates.

    Inputs of `forward`, all of whole numbers. A user's history stands before the user's candidates.
        users: (B,) rows of the table.
        lengths: (B,) items of each user: those of `Config.histories` and the candidates, in any order.
        items, categories: (L,) rows of the tables.
        actions: (L,) bits of the actions on an item; those of candidates are not read.
        times: (L,) seconds.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        self.tables = Tables(c)
        self.tokens = TokenEncoder(c)
        self.places = PlaceEncoder(c)
        self.layers = nn.ModuleList(STULayer(c) for _ in range(c.layers))
        self.clock = nn.Linear(c.width + 4, c.width)
        self.clock_norm = nn.LayerNorm(c.width)
        self.candidate = mlp(2 * c.width, c.item_hidden, c.width)
        self.head = nn.Sequential(
            nn.Linear(c.width, c.item_hidden), SwishLayerNorm(c.item_hidden), nn.Linear(c.item_hidden, 1)
        )

    def forward(
        self, users: Tensor, lengths: Tensor, items: Tensor, categories: Tensor, actions: Tensor, times: Tensor
    ) -> Tensor:
        c = self.config
        item, category = self.tables.item(items), self.tables.category(categories)  # (L, E)
        without_user = Jagged(lengths, len(items), c.most_tokens - 1)
        x = self.tokens(item, category, actions, without_user)
        x = prepend(self.tokens.user(self.tables.user(users)), x, without_user)  # (J, E)
        times = prepend(torch.zeros_like(users), times, without_user)
        jagged = Jagged(lengths + 1, len(times), c.most_tokens)

        x = self.places(x, times, jagged)
        x = F.dropout(x, c.input_dropout, self.training)
        groups = Groups(jagged, c.group_sizes(len(users)))
        weights = attention_weights(jagged, groups, c, x.dtype)
        for layer in self.layers:
            x = layer(x, weights, groups)

        last = jagged.last(c.candidates)  # (B * C,)
        user = torch.cat([x[last], hour_and_day(times[last]).to(x.dtype)], dim=1)
        user = self.clock_norm(self.clock(user))
        last = without_user.last(c.candidates)
        candidate = self.candidate(torch.cat([item[last], category[last]], dim=1))
        logits: Tensor = self.head(user * candidate)
        return logits.view(-1, c.candidates)


class TokenEncoder(nn.Module):
    """Tokens (L, E) from what is known of an item: itself, its category, the actions on it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        self.item = mlp(c.width, c.hidden, c.width)
        self.category = mlp(c.width, c.hidden, c.width)
        self.action = mlp(c.actions * c.action_size, c.hidden, c.width)
        self.user = nn.Linear(c.width, c.width)
        self.action_table = nn.Parameter(5.0 * torch.randn(c.actions, c.action_size))
        self.unknown_action = nn.Parameter(5.0 * torch.randn(c.actions * c.action_size))
        self.register_buffer("bits", 2 ** torch.arange(c.actions), persistent=False)

    bits: Tensor

    def forward(self, item: Tensor, category: Tensor, actions: Tensor, jagged: Jagged) -> Tensor:
        has_action = (actions.unsqueeze(1) & self.bits) > 0  # (L, actions)
        known = (has_action.unsqueeze(2) * self.action_table).flatten(1)
        is_candidate = jagged.position >= jagged.length - self.config.candidates
        action = torch.where(is_candidate.unsqueeze(1), self.unknown_action, known)
        x: Tensor = self.item(item) + self.category(category) + self.action(action)
        return x


class PlaceEncoder(nn.Module):
    """Adds to tokens how many items, and how much time, before the candidates they are. The user is at place 0."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        bounds = c.positions**-0.5, c.time_buckets**-0.5
        self.position = nn.Parameter(torch.empty(c.positions, c.width).uniform_(-bounds[0], bounds[0]))
        self.time = nn.Parameter(torch.empty(c.time_buckets + 1, c.width).uniform_(-bounds[1], bounds[1]))

    def forward(self, x: Tensor, times: Tensor, jagged: Jagged) -> Tensor:
        c = self.config
        before = (jagged.length - c.candidates - jagged.position).clamp(min=0) + 1
        place = torch.where(jagged.position == 0, 0, before.clamp(max=c.positions - 1))
        minutes = (times[jagged.last(1)][jagged.user] - times).clamp(min=0) / 60
        bucket = minutes.sqrt().long().clamp(max=c.time_buckets)
        return x * c.width**0.5 + F.embedding(bucket, self.time) + F.embedding(place, self.position)


class STULayer(nn.Module):
    """A sequential transduction unit: pointwise attention, gated, with a residual connection."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.head_size = config.heads, config.head_size
        inner = config.heads * config.head_size
        self.norm = nn.LayerNorm(config.width, eps=1e-6)
        self.uvqk = nn.Linear(config.width, 4 * inner)
        self.attention_norm = nn.LayerNorm(inner, eps=1e-6)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(3 * inner, config.width, bias=False)
        nn.init.xavier_uniform_(self.uvqk.weight)
        nn.init.xavier_uniform_(self.output.weight)

    def forward(self, x: Tensor, weights: list[list[Tensor]], groups: Groups) -> Tensor:
        u, v, q, k = self.uvqk(self.norm(x)).chunk(4, dim=1)  # each (J, H * A)
        u = F.silu(u)
        q = q * self.head_size**-0.5
        parts = zip(*(map(self.heads_of, groups.pad(part)) for part in (q, k, v)), weights, strict=True)
        attended = groups.unpad([attend(*part).transpose(1, 2).flatten(2) for part in parts])  # (J, H * A)
        gated = torch.cat([u, attended, u * self.attention_norm(attended)], dim=1)
        return x + self.output(self.dropout(gated))

    def heads_of(self, padded: Tensor) -> Tensor:
        """(G, N, H * A) to (G, H, N, A). It is contiguous, so that products read its blocks in place."""
        return padded.view(*padded.shape[:2], self.heads, self.head_size).transpose(1, 2).contiguous()


def attend(q: Tensor, k: Tensor, v: Tensor, weights: list[Tensor]) -> Tensor:
    """Pointwise attention (G, H, N, A) of a group, block by block. The weights (G, 1, Q, K) tell where a block ends."""
    blocks = []
    for weight in weights:
        begin, end = weight.shape[-1] - weight.shape[-2], weight.shape[-1]
        scores = q[:, :, begin:end] @ k[:, :, :end].transpose(2, 3)  # (G, H, Q, K)
        blocks.append((F.silu(scores) * weight.to(scores.dtype)) @ v[:, :, :end])
    return torch.cat(blocks, dim=2)


class SwishLayerNorm(nn.LayerNorm):
    """The input, gated by the sigmoid of its normalisation."""

    def forward(self, x: Tensor) -> Tensor:
        return x * super().forward(x).sigmoid()


def mlp(in_width: int, hidden: int, out_width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(in_width, hidden), SwishLayerNorm(hidden), nn.Linear(hidden, out_width), nn.LayerNorm(out_width)
    )


def attention_weights(jagged: Jagged, groups: Groups, config: Config, dtype: torch.dtype) -> list[list[Tensor]]:
    """For each block of queries of each group (G, 1, Q, K): 1 / N where a token may attend to another one, else 0.

    N is the most tokens of any user. A token may attend to itself and to what is before it, but not to other
    candidates. Padding counts as candidates.
    """
    weights = []
    for users, (_, longest) in zip(groups.users, groups.sizes, strict=True):
        index = torch.arange(longest, device=users.device)
        order = torch.minimum(index, (jagged.lengths[users] - config.candidates).unsqueeze(1))  # (G, N)
        blocks = []
        for begin in range(0, longest, config.query_block):
            end = min(begin + config.query_block, longest)
            is_same = index[begin:end].unsqueeze(1) == index[:end]
            may = (order[:, begin:end].unsqueeze(2) > order[:, :end].unsqueeze(1)) | is_same
            blocks.append((may.unsqueeze(1) / jagged.longest).to(dtype))
        weights.append(blocks)
    return weights


def hour_and_day(times: Tensor) -> Tensor:
    """(T,) seconds to (T, 4): the hour of the day and the day of the week, each as a point on a circle."""
    hour = times // 3600 % 24 / 24
    day = times // 86400 % 7 / 7
    angle = 2 * torch.pi * torch.stack([hour, day], dim=1)
    return torch.cat([angle.cos(), angle.sin()], dim=1)
