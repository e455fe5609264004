"""The coordinator's settings; each a HOLDFAST_... variable with a default that works on one machine."""

from typing import Literal

from pydantic import Field

from holdfast.kit.settings import ServiceSettings


class CoordinatorSettings(ServiceSettings):
    relay: Literal["hosted", "service"] = Field(
        "hosted", description="hosted: publish what was just committed from memory; service: leave it to the relay"
    )
    batch_inputs_max: int = Field(500, ge=1, description="The most inputs that one commit takes")
    cache_states_max: int = Field(50_000, ge=1, description="States kept in memory")
    snapshot_events_min: int = Field(200, ge=1, description="Events between two snapshots of a small instance")
    publisher_lease_s: float = Field(5.0, gt=0, description="How long a publisher's lease lasts without renewal")
    session_timeout_s: float = Field(10.0, gt=0, description="Kafka moves the partitions of a silent coordinator after")
    parked_tries_max: int = Field(5, ge=1, description="Tries at a parked input before its instance is quarantined")
    parked_first_delay_s: float = Field(1.0, gt=0, description="Delay before the first try; doubled each time")
    poisoned_per_minute_max: int = Field(
        50, ge=1, description="More instances than this failing to decide in a minute means a bad deploy: stop"
    )
    reclaim_s: float = Field(
        1.0, gt=0, description="Pause before a partition that somebody else claimed is claimed again"
    )
