"""The relay's settings; each a HOLDFAST_... variable with a default that works on one machine."""

from pydantic import Field

from holdfast.kit.settings import ServiceSettings


class RelaySettings(ServiceSettings):
    relay_lease_s: float = Field(
        5.0, gt=0, description="How long a relay's hold on a partition's outbox lasts without renewal"
    )
    relay_poll_s: float = Field(1.0, gt=0, description="How often a relay that nobody wakes looks for new rows")
    relay_rows_max: int = Field(500, ge=1, description="The most outbox rows that one read takes, of all partitions")
    relay_in_flight_bytes_max: int = Field(
        32 * 1024 * 1024,
        ge=1,
        description="Bytes handed to Kafka and not yet acknowledged before a relay stops reading",
    )
    relay_stats_s: float = Field(5.0, gt=0, description="How often the size and age of the outbox are measured")
