"""Let the processes of one machine become the ranks of a process group."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch

from torchzoo.devices import device_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

#: Ranks may wait long for each other: one rank compiles longer, or all are stopped while another case is measured.
#: Ranks that hang are ended by the limits of stages.
PATIENCE = timedelta(hours=12)


class Participant:
    """A rank. `torchzoo.measure.case_ranks` calls the methods of all ranks at the same time.

    Args:
        device: the device of this rank.
        rank: its number, counted from 0.
        world: the number of ranks.
    """

    def __init__(self, device: torch.device, rank: int, world: int) -> None:
        self.device, self.rank, self.world = device, rank, world
        self.mesh: DeviceMesh | None = None

    def device_name(self) -> str:
        return str(self.device)

    def meet(self, port: int | None = None) -> int:
        """Open the store (rank 0) or connect to it (all others). Return its port."""
        from torch import distributed

        store = distributed.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", port or 0, self.world, is_master=self.rank == 0, wait_for_workers=False, timeout=PATIENCE
        )
        self._store = store
        return int(store.port)

    def join(self) -> None:
        """Make the process group and the mesh."""
        from torch import distributed
        from torch.distributed.device_mesh import init_device_mesh

        backend = device_of(self.device).collectives
        device_id = None if self.device.type == "cpu" else self.device
        distributed.init_process_group(
            backend, store=self._store, rank=self.rank, world_size=self.world, timeout=PATIENCE, device_id=device_id
        )
        self.mesh = init_device_mesh(self.device.type, (self.world,))


def use_device(name: str, threads: int | None) -> torch.device:
    """Let this process use that device, and so many CPU threads."""
    device = torch.device(name)
    if threads is not None:
        torch.set_num_threads(threads)
    if device.type != "cpu":
        device = torch.device(device.type, device.index or 0)
        torch.accelerator.set_device_index(device)
    return device
