-- What people and clients read.

-- name: now
SELECT clock_timestamp()

-- name: instances
SELECT * FROM holdfast.workflow_instances WHERE instance_id = ANY ($1::uuid[])

-- name: list_instances
SELECT * FROM holdfast.workflow_instances
 WHERE ($1::text IS NULL OR namespace = $1)
   AND ($2::text IS NULL OR workflow = $2)
   AND (cardinality($3::text[]) = 0 OR state = ANY ($3))
   AND ($4::boolean IS NULL OR (quarantined_at IS NOT NULL) = $4)
   AND ($6::timestamptz IS NULL OR (created_at, instance_id) < ($6, $7::uuid))
 ORDER BY created_at DESC, instance_id DESC
 LIMIT $5

-- name: events
SELECT sequence, execution, schema_version, type, caused_by, actor_type, actor_id, trace_id, span_id, payload, occurred_at
  FROM holdfast.events
 WHERE instance_id = $1 AND sequence > $2
 ORDER BY sequence
 LIMIT $3

-- name: outputs
-- The newest execution's: found from the end, where it is.
SELECT wanted.id AS instance_id, e.output
  FROM unnest($1::uuid[]) wanted (id)
 CROSS JOIN LATERAL (
       SELECT payload -> 'output' AS output FROM holdfast.events e
        WHERE e.instance_id = wanted.id AND e.type = 'WORKFLOW_COMPLETING'
        ORDER BY e.sequence DESC
        LIMIT 1) e

-- name: tasks
SELECT * FROM holdfast.task_executions WHERE instance_id = $1 ORDER BY execution, path, attempt

-- name: leases
SELECT * FROM holdfast.execution_leases WHERE instance_id = $1 ORDER BY path

-- name: timers
SELECT * FROM holdfast.timers WHERE instance_id = $1 ORDER BY key

-- name: outcomes
SELECT c.*
  FROM unnest($1::uuid[], $2::text[], $3::text[]) wanted (instance_id, source, id)
  JOIN holdfast.command_log c USING (instance_id, source, id)

-- name: commands
SELECT * FROM holdfast.command_log WHERE instance_id = $1 ORDER BY received_at, source, id

-- name: rejections
SELECT path, fence, count FROM holdfast.report_rejections WHERE instance_id = $1 ORDER BY path, fence

-- name: parked
SELECT p.*, (SELECT count(*) FROM holdfast.parked_inputs i WHERE i.instance_id = p.instance_id) AS inputs
  FROM holdfast.parked_instances p
 ORDER BY p.parked_at, p.instance_id
 LIMIT $1

-- name: counts
SELECT (SELECT jsonb_object_agg(state, n) FROM (SELECT state, count(*) AS n FROM holdfast.workflow_instances GROUP BY state) s)
           AS instances,
       (SELECT count(*) FROM holdfast.execution_leases) AS leases,
       (SELECT count(*) FROM holdfast.timers) AS timers,
       (SELECT count(*) FROM holdfast.outbox) AS outbox,
       (SELECT count(*) FROM holdfast.outbox_parked) AS outbox_parked,
       (SELECT count(*) FROM holdfast.parked_inputs) AS parked_inputs,
       (SELECT count(*) FROM holdfast.parked_instances WHERE quarantined_at IS NOT NULL) AS quarantined,
       (SELECT coalesce(sum(count), 0)::bigint FROM holdfast.report_rejections) AS rejections
