-- Everything that a batch needs and that is not cached, in one round trip: instances with what follows their snapshot,
-- commands that are on record, newest versions. Three shapes in one kind of row, told apart by `kind`:
--   i: texts = namespace, workflow, run id; numbers = version, sequence, snapshot's sequence, quarantined; the columns
--      of its events and leases as arrays (an array decodes much faster than as many rows)
--   c: texts = source, id, instance key, type, outcome, reason; body = digest; at = received
--   w: texts = namespace, workflow; numbers = newest version
CREATE FUNCTION holdfast.load_batch(
    instances uuid[],
    shape integer, -- Snapshots of another shape are ignored.
    command_instances uuid[],
    command_sources text[],
    command_ids text[],
    namespaces text[],
    workflows text[]
)
RETURNS TABLE (
    kind text,
    instance_id uuid,
    texts text[],
    numbers bigint[],
    body bytea,
    at timestamptz,
    event_integers bigint[],
    event_texts text[],
    event_payloads json[],
    event_times timestamptz[],
    lease_paths text[],
    lease_numbers bigint[],
    lease_expiries timestamptz[]
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_bitmapscan = off
SET search_path = holdfast, pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(instances) > 0 THEN
        RETURN QUERY
        SELECT 'i', i.instance_id, ARRAY[i.namespace, i.workflow, i.run_id],
               ARRAY[i.version, i.sequence, coalesce(s.sequence, 0), (i.quarantined_at IS NOT NULL)::integer],
               s.body, NULL::timestamptz, e.integers, e.texts, e.payloads, e.times, l.paths, l.numbers, l.expiries
          FROM unnest(instances) wanted (id)
          JOIN workflow_instances i ON i.instance_id = wanted.id
          LEFT JOIN snapshots s ON s.instance_id = i.instance_id AND s.shape = load_batch.shape AND s.sequence <= i.sequence
         CROSS JOIN LATERAL (
               SELECT array_agg(ARRAY[e.sequence, e.execution, e.schema_version]) AS integers,
                      array_agg(ARRAY[e.type, e.caused_by, e.actor_type, e.actor_id, e.trace_id, e.span_id]) AS texts,
                      array_agg(e.payload) AS payloads,
                      array_agg(e.occurred_at) AS times
                 FROM (SELECT * FROM events e
                        WHERE e.instance_id = i.instance_id AND e.sequence > coalesce(s.sequence, 0)
                          AND e.sequence <= i.sequence
                        ORDER BY e.sequence) e
               ) e
         CROSS JOIN LATERAL (
               SELECT array_agg(l.path) AS paths, array_agg(ARRAY[l.fence, l.renewals]) AS numbers,
                      array_agg(l.expires_at) AS expiries
                 FROM execution_leases l
                WHERE l.instance_id = i.instance_id
               ) l;
    END IF;

    IF cardinality(command_instances) > 0 THEN
        RETURN QUERY
        SELECT 'c', c.instance_id, ARRAY[c.source, c.id, c.instance, c.type, c.outcome, c.reason], NULL::bigint[],
               c.digest, c.received_at, NULL::bigint[], NULL::text[], NULL::json[], NULL::timestamptz[], NULL::text[],
               NULL::bigint[], NULL::timestamptz[]
          FROM unnest(command_instances, command_sources, command_ids) wanted (instance, source, id)
          JOIN command_log c ON c.instance_id = wanted.instance AND c.source = wanted.source AND c.id = wanted.id;
    END IF;

    IF cardinality(namespaces) > 0 THEN
        RETURN QUERY
        SELECT 'w', NULL::uuid, ARRAY[wanted.namespace, wanted.workflow], ARRAY[newest.version::bigint], NULL::bytea,
               NULL::timestamptz, NULL::bigint[], NULL::text[], NULL::json[], NULL::timestamptz[], NULL::text[],
               NULL::bigint[], NULL::timestamptz[]
          FROM unnest(namespaces, workflows) wanted (namespace, workflow)
         CROSS JOIN LATERAL (
               SELECT d.version FROM workflow_definitions d
                WHERE d.namespace = wanted.namespace AND d.workflow = wanted.workflow
                ORDER BY d.version DESC LIMIT 1) newest;
    END IF;
END
$$;
