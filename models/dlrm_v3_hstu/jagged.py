"""Jagged sequences: all tokens of all users in one row, the tokens of the first user first."""

import torch
from torch import Tensor


class Jagged:
    """Where the tokens of jagged sequences are. Nothing here waits for the device.

    Args:
        lengths: (B,) tokens of each user.
        total: their sum, J, which the host knows.
        longest: N, the most tokens that a user may have.
    """

    def __init__(self, lengths: Tensor, total: int, longest: int) -> None:
        self.lengths, self.total, self.longest = lengths, total, longest
        self.ends = lengths.cumsum(0)  # (B,)
        self.starts = self.ends - lengths
        token = torch.arange(total, device=lengths.device)
        self.user = torch.bucketize(token, self.ends, right=True)  # (J,): whose token it is
        self.position = token - self.starts[self.user]  # (J,): where it is in its sequence
        self.length = lengths[self.user]  # (J,): how long that sequence is

    def last(self, count: int) -> Tensor:
        """(B * count,): the places of the last tokens of each user."""
        offset = torch.arange(-count, 0, device=self.ends.device)
        return (self.ends.unsqueeze(1) + offset).flatten()


class Groups:
    """Users in groups of like lengths, each group padded to its longest user. Nothing here waits for the device.

    Args:
        jagged: the sequences.
        sizes: for each group, the shortest users first, how many users (G) it has and the most tokens (N) of one.
    """

    def __init__(self, jagged: Jagged, sizes: list[tuple[int, int]]) -> None:
        self.sizes = sizes
        self.users = torch.split(jagged.lengths.argsort(), [users for users, _ in sizes])  # of each group
        tokens, rows = [], []
        for users, (_, most) in zip(self.users, sizes, strict=True):
            place = torch.arange(most, device=users.device)
            tokens.append((jagged.starts[users].unsqueeze(1) + place).flatten())
            rows.append(torch.full_like(users, most))  # places of each user
        #: The token of each place of all groups. Behind the end of a sequence it belongs to others, with no meaning.
        self.token = torch.cat(tokens).clamp(max=jagged.total - 1)
        places = torch.cat(rows)
        first = (places.cumsum(0) - places)[torch.cat(self.users).argsort()]  # (B,)
        self.place = first[jagged.user] + jagged.position  # (J,): of each token

    def pad(self, values: Tensor) -> list[Tensor]:
        """(J, D) to (G, N, D) for each group."""
        parts = torch.split(values.index_select(0, self.token), [users * most for users, most in self.sizes])
        return [part.view(users, most, -1) for part, (users, most) in zip(parts, self.sizes, strict=True)]

    def unpad(self, padded: list[Tensor]) -> Tensor:
        """(G, N, D) of each group to (J, D)."""
        return torch.cat([part.flatten(0, 1) for part in padded]).index_select(0, self.place)


def prepend(first: Tensor, values: Tensor, jagged: Jagged) -> Tensor:
    """`values` (J, ...) of jagged sequences with one more value, of `first` (B, ...), before each sequence."""
    users = len(first)
    longer = Jagged(jagged.lengths + 1, jagged.total + users, jagged.longest + 1)
    token = torch.arange(longer.total, device=values.device)
    source = torch.where(longer.position == 0, longer.user, users + token - longer.user - 1)
    return torch.cat([first, values]).index_select(0, source)
