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

    def pad(self, values: Tensor) -> Tensor:
        """(J, D) to (B, N, D). What stands behind the end of a sequence belongs to others and has no meaning."""
        place = self.starts.unsqueeze(1) + torch.arange(self.longest, device=self.starts.device)
        padded = values.index_select(0, place.clamp(max=self.total - 1).flatten())
        return padded.view(len(self.lengths), self.longest, -1)

    def unpad(self, padded: Tensor) -> Tensor:
        """(B, N, D) to (J, D)."""
        return padded.flatten(0, 1).index_select(0, self.user * self.longest + self.position)


def prepend(first: Tensor, values: Tensor, jagged: Jagged) -> Tensor:
    """`values` (J, ...) of jagged sequences with one more value, of `first` (B, ...), before each sequence."""
    users = len(first)
    longer = Jagged(jagged.lengths + 1, jagged.total + users, jagged.longest + 1)
    token = torch.arange(longer.total, device=values.device)
    source = torch.where(longer.position == 0, longer.user, users + token - longer.user - 1)
    return torch.cat([first, values]).index_select(0, source)
