-- Statements of recovery. It reads rows and marks what it has claimed or sent; it never changes an instance. What belongs
-- to a quarantined instance is `frozen` and seen by none of these.

-- name: now
SELECT clock_timestamp()

-- name: claim_due_timers
-- Claimed for a while, not locked: if the claimer dies, the timer is due again when the claim runs out.
WITH due AS (
    SELECT instance_id, key FROM holdfast.timers
     WHERE sent_at IS NULL AND NOT frozen AND greatest(due_at, claimed_until) <= clock_timestamp()
     ORDER BY greatest(due_at, claimed_until)
     LIMIT $2
       FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.timers t
   SET claimed_until = clock_timestamp() + $1::float8 * interval '1 second'
  FROM due
  JOIN holdfast.workflow_instances i ON i.instance_id = due.instance_id
 WHERE t.instance_id = due.instance_id AND t.key = due.key
RETURNING t.partition, t.instance_id, i.namespace, i.workflow, i.run_id, t.key, t.token, t.due_at

-- name: next_due
SELECT min(greatest(due_at, claimed_until)) FROM holdfast.timers WHERE sent_at IS NULL AND NOT frozen

-- name: mark_timers_sent
-- The token: a timer that was scheduled anew meanwhile has not been sent.
UPDATE holdfast.timers t
   SET sent_at = clock_timestamp(), sent_offset = s."offset", claimed_until = NULL
  FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) s (instance_id, key, token, "offset")
 WHERE t.instance_id = s.instance_id AND t.key = s.key AND t.token = s.token

-- name: unanswered_timers
-- Ticks of a parked instance wait in `parked_inputs`: sending them again would only make that queue longer.
WITH unanswered AS (
    SELECT t.instance_id, t.key FROM holdfast.timers t
      JOIN holdfast.inbox_partitions p ON p.partition = t.partition AND p.ticks_next > t.sent_offset
     WHERE t.sent_at IS NOT NULL AND NOT t.frozen
       AND (t.claimed_until IS NULL OR t.claimed_until <= clock_timestamp())
       AND NOT EXISTS (SELECT FROM holdfast.parked_instances q WHERE q.instance_id = t.instance_id)
     ORDER BY t.partition, t.sent_offset
     LIMIT $2
       FOR UPDATE OF t SKIP LOCKED
)
UPDATE holdfast.timers t
   SET claimed_until = clock_timestamp() + $1::float8 * interval '1 second'
  FROM unanswered u
  JOIN holdfast.workflow_instances i ON i.instance_id = u.instance_id
 WHERE t.instance_id = u.instance_id AND t.key = u.key
RETURNING t.partition, t.instance_id, i.namespace, i.workflow, i.run_id, t.key, t.token, t.due_at

-- name: lapsed_leases
-- One statement, one snapshot: the lease is read no earlier than the watermark that says every heartbeat in time was seen.
SELECT l.partition, l.instance_id, i.namespace, i.workflow, i.run_id, l.path, l.fence, l.renewals, l.lease_s,
       l.expires_at, l.timeout_at
  FROM holdfast.execution_leases l
  JOIN holdfast.inbox_partitions p ON p.partition = l.partition AND p.reports_next >= $3
  JOIN holdfast.workflow_instances i ON i.instance_id = l.instance_id
 WHERE l.partition = $1
   AND NOT l.frozen
   AND least(l.expires_at, l.timeout_at) <= $2
   AND ($5::timestamptz IS NULL OR (least(l.expires_at, l.timeout_at), l.instance_id, l.path) > ($5, $6::uuid, $7::text))
   AND NOT EXISTS (SELECT FROM holdfast.parked_instances q WHERE q.instance_id = l.instance_id)
 ORDER BY least(l.expires_at, l.timeout_at), l.instance_id, l.path
 LIMIT $4

-- name: partitions_with_due_leases
SELECT partition, min(lease_s) AS lease_s
  FROM holdfast.execution_leases
 WHERE NOT frozen AND least(expires_at, timeout_at) <= $1
 GROUP BY partition

-- name: next_lease_due
SELECT min(least(expires_at, timeout_at)) FROM holdfast.execution_leases WHERE NOT frozen

-- name: queued_since
SELECT i.partition, t.instance_id, i.namespace, i.workflow, i.run_id, t.path, t.execution, t.attempt, t.fence, t.queue,
       t.queued_at
  FROM holdfast.task_executions t
  JOIN holdfast.workflow_instances i ON i.instance_id = t.instance_id
 WHERE t.status = 'QUEUED'
   AND t.queued_at < $1
   AND i.quarantined_at IS NULL
   AND ($3::timestamptz IS NULL OR (t.queued_at, t.instance_id, t.path) > ($3, $4::uuid, $5::text))
   AND NOT EXISTS (SELECT FROM holdfast.parked_instances q WHERE q.instance_id = t.instance_id)
 ORDER BY t.queued_at, t.instance_id, t.path
 LIMIT $2

-- name: still_queued
SELECT q.place
  FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::integer[], $5::bigint[])
       WITH ORDINALITY q (instance_id, execution, path, attempt, fence, place)
  JOIN holdfast.task_executions t
    ON t.instance_id = q.instance_id AND t.execution = q.execution AND t.path = q.path AND t.attempt = q.attempt
 WHERE t.status = 'QUEUED' AND t.fence = q.fence
   AND NOT EXISTS (SELECT FROM holdfast.parked_instances p WHERE p.instance_id = q.instance_id)
 ORDER BY q.place

-- name: inbox_positions
SELECT partition, commands_next, reports_next, ticks_next FROM holdfast.inbox_partitions WHERE moved_to IS NULL

-- name: outbox_positions
SELECT p.partition, p.outbox_last, o.done
  FROM holdfast.inbox_partitions p
  JOIN holdfast.outbox_partitions o ON o.partition = p.partition
 WHERE p.moved_to IS NULL
