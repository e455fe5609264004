-- Statements of the coordinator. Three are functions: migrations/0002_commit.sql, 0003_load.sql, 0005_claim.sql.

-- name: commit
SELECT * FROM holdfast.commit_batch(
    $1, $2::holdfast.wire_uuids, $3::holdfast.wire_texts, $4::holdfast.wire_times,
    $5::holdfast.wire_docs, $6::holdfast.wire_blobs, $7::holdfast.wire_numbers, $8::holdfast.wire_numbers,
    $9::holdfast.wire_numbers, $10::holdfast.wire_numbers, $11::holdfast.wire_numbers, $12::holdfast.wire_numbers,
    $13::holdfast.wire_numbers, $14::holdfast.wire_floats, $15::holdfast.wire_numbers, $16::holdfast.wire_numbers,
    $17::holdfast.wire_numbers, $18::holdfast.wire_numbers, $19::holdfast.wire_numbers, $20::holdfast.wire_numbers,
    $21::holdfast.wire_numbers, $22::holdfast.wire_numbers, $23::holdfast.wire_numbers)

-- name: load
SELECT * FROM holdfast.load_batch($1, $2, $3, $4, $5, $6, $7)

-- name: claim
SELECT * FROM holdfast.claim_partitions($1, $2, $3, $4)

-- name: settle
-- FOR UPDATE waits for a backend that is still committing on behalf of a connection that we have lost.
SELECT partition, epoch, commands_next, reports_next, ticks_next, outbox_last
  FROM holdfast.inbox_partitions
 WHERE partition = ANY ($1::integer[])
 ORDER BY partition
   FOR UPDATE

-- name: partition_count
SELECT partitions FROM holdfast.cluster

-- name: parked_due
SELECT instance_id FROM holdfast.parked_instances
 WHERE partition = ANY ($1::integer[])
   AND quarantined_at IS NULL
   AND (next_try_at IS NULL OR next_try_at <= $2)
 ORDER BY next_try_at NULLS FIRST, instance_id

-- name: parked_inputs
SELECT number, partition, instance_id, instance, topic, "offset", key, value, headers, error, parked_at
  FROM holdfast.parked_inputs
 WHERE instance_id = $1
 ORDER BY number
 LIMIT $2

-- name: parked_state
SELECT tries FROM holdfast.parked_instances WHERE instance_id = $1

-- name: wake_relay
SELECT pg_notify('holdfast_outbox', '')

-- name: wake_recovery
SELECT pg_notify('holdfast_timers', $1::text)

-- name: now
SELECT clock_timestamp()
