"""What a job costs in money: tf.data service's equation (SoCC 23, section 4.1, eq. 1).

    C = t ( C_cpu (n_W used CPU + n_T available CPU) + C_mem (the same of memory)
            + C_acc n_T n_acc / T )

Workers pay for what they use, clients for what they hold, and the network is free. The paper's own
dollars (ResNet-50: 80.2 colocated, 31.2 + 9.4 with the service) come out with whole machines for
workers, which is ``worker_price`` here.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.throughput.errors import ProfileError


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars an hour.

    Attributes:
        client: of one training machine, accelerators and its cores included.
        worker: of one data worker with all its cores.
    """

    client: float
    worker: float

    def __post_init__(self) -> None:
        """Nothing is paid back."""
        for field in ("client", "worker"):
            if getattr(self, field) < 0:
                raise ProfileError(f"{field}: a price of {getattr(self, field)} is less than 0")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a job, in dollars."""

    hours: float
    clients: float
    workers: float

    @property
    def total(self) -> float:
        """Of both."""
        return self.clients + self.workers


def cost_of(steps: float, rate: float, prices: Prices, *, clients: int, workers: float) -> Cost:
    """What so many steps cost at a rate of steps a second.

    Args:
        steps: of the whole job.
        rate: steps a second.
        prices: per machine.
        clients: training machines.
        workers: data workers, or the part of them that is used.

    Raises:
        ProfileError: it would never end.
    """
    if rate <= 0:
        raise ProfileError(f"rate: {rate} steps a second; it must be more than 0")
    hours = steps / rate / 3600
    return Cost(hours, hours * clients * prices.client, hours * workers * prices.worker)
