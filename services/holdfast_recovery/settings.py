"""Recovery's settings; each a HOLDFAST_... variable with a default that works on one machine."""

from pydantic import Field

from holdfast.kit.settings import ServiceSettings


class RecoverySettings(ServiceSettings):
    timers_claim_s: float = Field(
        10.0, gt=0, description="How long a recovery may take to send a timer before another one does"
    )
    timers_page: int = Field(2000, ge=1, description="The most timers that are claimed at once")
    timers_poll_s: float = Field(
        1.0, gt=0, description="How late a timer may be noticed where Postgres cannot tell us (no LISTEN)"
    )
    leases_ask_s: float = Field(
        1.0, gt=0, description="How often Kafka is asked where reports end, at least; short leases ask more often"
    )
    leases_survey_s: float = Field(5.0, gt=0, description="How long a lease shorter than all others may go unnoticed")
    dispatches_every_s: float = Field(10.0, gt=0, description="How often lost dispatches are looked for")
    dispatches_patience_s: float = Field(
        10.0, gt=0, description="How long a task may be queued before its dispatch is looked for"
    )
    dispatches_backlog_max: int = Field(
        2_000_000, ge=1, description="The most unfinished dispatches of one queue that are remembered (16 bytes each)"
    )
    ticks_every_s: float = Field(10.0, gt=0, description="How often ticks that nobody answered are sent again")
    ticks_timeout_s: float = Field(5.0, gt=0, description="How long Kafka may take for a tick before it counts as away")
    trim_every_s: float = Field(60.0, gt=0, description="How often finished dispatches are deleted from task topics")
    trim_records_min: int = Field(
        1000, ge=1, description="How many records of a partition must be finished before they are deleted"
    )
    kafka_timeout_s: float = Field(3.0, gt=0, description="How long Kafka may take to answer a question")
