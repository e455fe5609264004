-- Everything that Postgres remembers. The schema changes only when the engine does, never for a new workflow.
--
-- No foreign keys: their triggers would cost more than the insert itself, and every row is written by one function in
-- one transaction. `json`, not `jsonb`, for what users wrote: jsonb turns 1e22 into an integer and sorts keys, and a state that
-- is rebuilt from its events must be the one that was decided on, to the byte. No index on columns that change with each step (state, sequence, updated_at): updates stay HOT.

CREATE TABLE holdfast.cluster (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    partitions integer NOT NULL CHECK (partitions > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE holdfast.workflow_definitions (
    namespace text NOT NULL,
    workflow text NOT NULL,
    version integer NOT NULL,
    body json NOT NULL,
    defined_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, workflow, version)
);

CREATE TABLE holdfast.workflow_instances (
    instance_id uuid PRIMARY KEY,
    partition integer NOT NULL,
    namespace text NOT NULL,
    workflow text NOT NULL,
    run_id text NOT NULL,
    version integer NOT NULL,
    state text NOT NULL,
    execution integer NOT NULL,
    sequence bigint NOT NULL,
    fence bigint NOT NULL,
    awaiting text,
    error json,
    last_service text NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    finished_at timestamptz,
    quarantined_at timestamptz,
    quarantine_reason text,
    UNIQUE (namespace, workflow, run_id)
) WITH (fillfactor = 60);

-- Lists are newest first, a page at a time.
CREATE INDEX workflow_instances_newest ON holdfast.workflow_instances (created_at, instance_id);

CREATE TABLE holdfast.events (
    instance_id uuid NOT NULL,
    sequence bigint NOT NULL,
    execution integer NOT NULL,
    type text NOT NULL,
    schema_version integer NOT NULL,
    payload json NOT NULL,
    occurred_at timestamptz NOT NULL,
    caused_by text NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    trace_id text,
    span_id text,
    PRIMARY KEY (instance_id, sequence)
);

CREATE TABLE holdfast.snapshots (
    instance_id uuid PRIMARY KEY,
    sequence bigint NOT NULL,
    shape integer NOT NULL,
    body bytea NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE holdfast.task_executions (
    instance_id uuid NOT NULL,
    execution integer NOT NULL,
    path text NOT NULL,
    attempt integer NOT NULL,
    status text NOT NULL,
    fence bigint NOT NULL,
    queue text NOT NULL,
    activity text NOT NULL,
    holder text,
    queued_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    error json,
    PRIMARY KEY (instance_id, execution, path, attempt)
) WITH (fillfactor = 70);

-- Recovery looks for dispatches that nobody has answered. This index costs the HOT update when a task leaves the queue,
-- still less than a table of its own would.
CREATE INDEX task_executions_queued ON holdfast.task_executions (queued_at) WHERE status = 'QUEUED';

CREATE TABLE holdfast.execution_leases (
    instance_id uuid NOT NULL,
    path text NOT NULL,
    partition integer NOT NULL,
    execution integer NOT NULL,
    attempt integer NOT NULL,
    fence bigint NOT NULL,
    holder text NOT NULL,
    address text NOT NULL,
    lease_s double precision NOT NULL,
    since timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    timeout_at timestamptz NOT NULL,
    renewals bigint NOT NULL DEFAULT 0,
    details json,
    frozen boolean NOT NULL DEFAULT false,
    PRIMARY KEY (instance_id, path)
) WITH (fillfactor = 70);

CREATE INDEX execution_leases_due ON holdfast.execution_leases (least(expires_at, timeout_at), instance_id, path) WHERE NOT frozen;

CREATE TABLE holdfast.timers (
    instance_id uuid NOT NULL,
    key text NOT NULL,
    partition integer NOT NULL,
    token bigint NOT NULL,
    due_at timestamptz NOT NULL,
    claimed_until timestamptz,
    sent_at timestamptz,
    sent_offset bigint,
    frozen boolean NOT NULL DEFAULT false,
    PRIMARY KEY (instance_id, key)
) WITH (fillfactor = 80);

-- A claimed timer is due again when the claim runs out, so that one expression says when to look next.
CREATE INDEX timers_due ON holdfast.timers (greatest(due_at, claimed_until)) WHERE sent_at IS NULL AND NOT frozen;
CREATE INDEX timers_sent ON holdfast.timers (partition, sent_offset) WHERE sent_at IS NOT NULL AND NOT frozen;

CREATE TABLE holdfast.outbox (
    partition integer NOT NULL,
    number bigint NOT NULL,
    body bytea NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (partition, number)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);

-- Bodies live for milliseconds: compressing them is wasted.
ALTER TABLE holdfast.outbox ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE holdfast.outbox_partitions (
    partition integer PRIMARY KEY,
    holder text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0,
    lease_s double precision NOT NULL DEFAULT 0,
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    done bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

CREATE TABLE holdfast.outbox_parked (
    partition integer NOT NULL,
    number bigint NOT NULL,
    position integer NOT NULL,
    topic text NOT NULL,
    instance text NOT NULL,
    body bytea NOT NULL,
    error text NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (partition, number, position)
);

-- One row per relay that sleeps; only then is a NOTIFY worth its price.
CREATE TABLE holdfast.relay_waiting (
    holder text PRIMARY KEY,
    until timestamptz NOT NULL
);

CREATE TABLE holdfast.inbox_partitions (
    partition integer PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    holder text NOT NULL DEFAULT '',
    commands_next bigint NOT NULL DEFAULT 0,
    reports_next bigint NOT NULL DEFAULT 0,
    ticks_next bigint NOT NULL DEFAULT 0,
    outbox_last bigint NOT NULL DEFAULT 0,
    commands_topic_id text,
    reports_topic_id text,
    ticks_topic_id text,
    moved_to text,
    claimed_at timestamptz
) WITH (fillfactor = 10); -- A few rows, updated by every commit: room for HOT chains.

CREATE TABLE holdfast.command_log (
    instance_id uuid NOT NULL,
    source text NOT NULL,
    id text NOT NULL,
    instance text NOT NULL,
    type text NOT NULL,
    digest bytea NOT NULL,
    outcome text NOT NULL,
    reason text NOT NULL,
    received_at timestamptz NOT NULL,
    duplicates bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (instance_id, source, id)
);

CREATE TABLE holdfast.parked_inputs (
    instance_id uuid NOT NULL,
    number bigint NOT NULL,
    partition integer NOT NULL,
    instance text NOT NULL,
    topic text NOT NULL,
    "offset" bigint NOT NULL,
    key bytea,
    value bytea,
    headers bytea NOT NULL,
    error text NOT NULL,
    parked_at timestamptz NOT NULL,
    PRIMARY KEY (instance_id, number)
);

-- An instance that has parked inputs takes no other path; with `quarantined_at` it takes none at all.
CREATE TABLE holdfast.parked_instances (
    instance_id uuid PRIMARY KEY,
    partition integer NOT NULL,
    instance text NOT NULL,
    tries integer NOT NULL DEFAULT 0,
    next_try_at timestamptz,
    error text NOT NULL DEFAULT '',
    parked_at timestamptz NOT NULL,
    quarantined_at timestamptz
);

CREATE INDEX parked_instances_partition ON holdfast.parked_instances (partition);

CREATE TABLE holdfast.report_rejections (
    instance_id uuid NOT NULL,
    path text NOT NULL,
    fence bigint NOT NULL,
    count bigint NOT NULL,
    last_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (instance_id, path, fence)
);
