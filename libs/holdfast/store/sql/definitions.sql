-- name: define
-- A stored version never changes: what is there already stays.
INSERT INTO holdfast.workflow_definitions (namespace, workflow, version, body, defined_at)
VALUES ($1, $2, $3, $4::json, $5)
ON CONFLICT DO NOTHING
RETURNING true

-- name: same
SELECT body::jsonb = $4::text::jsonb FROM holdfast.workflow_definitions WHERE namespace = $1 AND workflow = $2 AND version = $3

-- name: one
SELECT namespace, workflow, version, body, defined_at FROM holdfast.workflow_definitions
 WHERE namespace = $1 AND workflow = $2 AND ($3::integer IS NULL OR version = $3)
 ORDER BY version DESC
 LIMIT 1

-- name: all
SELECT namespace, workflow, version, body, defined_at FROM holdfast.workflow_definitions
 ORDER BY namespace, workflow, version
