-- One batch of the coordinator: one call, one round trip, one transaction.
--
-- How a batch travels. Most values repeat (paths, types, times, ids), and each array element costs on both sides, so
-- every distinct uuid, text and timestamp is sent once, and rows are flat arrays of numbers with a fixed stride that
-- point into them. `holdfast.store.pack` writes these arrays; the two change together, by a new migration. A pointer 0
-- is NULL: an array has no element 0. PL/pgSQL keeps array arguments in expanded form, so each lookup is O(1).
--
-- The planner settings: plans are made once and kept, at first against empty tables, where a sequential scan under a
-- hash join looks best and stays cached while the table grows. Nested loops over the primary key are right for one row
-- and for thousands, and lock rows in the order of the arrays, which is the order of ids.
--
-- Errors: HF001 fenced, HF002 conflict (DETAIL: the instances).

-- Names for the arrays as they arrive: asyncpg writes arrays itself, but lets us write a domain.
CREATE DOMAIN holdfast.wire_uuids AS uuid[];
CREATE DOMAIN holdfast.wire_texts AS text[];
CREATE DOMAIN holdfast.wire_times AS timestamptz[];
CREATE DOMAIN holdfast.wire_docs AS json[];
CREATE DOMAIN holdfast.wire_blobs AS bytea[];
CREATE DOMAIN holdfast.wire_numbers AS bigint[];
CREATE DOMAIN holdfast.wire_floats AS double precision[];

CREATE FUNCTION holdfast.commit_batch(
    service text,
    ids uuid[],
    texts text[],
    times timestamptz[],
    docs json[],
    blobs bytea[],
    partitions bigint[],
    created bigint[],
    updated bigint[],
    origins bigint[],
    events bigint[],
    tasks bigint[],
    leases bigint[],
    lease_seconds double precision[],
    leases_ended bigint[],
    renewals bigint[],
    timers bigint[],
    timers_gone bigint[],
    commands bigint[],
    repeats bigint[],
    snapshots bigint[],
    rare bigint[], -- empty, or the lengths of the four sections in `parking`
    parking bigint[],
    OUT now timestamptz,
    OUT relay_waiting boolean,
    OUT publisher_lost integer[]
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_bitmapscan = off
SET search_path = holdfast, pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    hits bigint;
    missed text;
BEGIN
    -- The fence, first: a zombie stops here and has locked nothing else. Stride 12: partition, epoch, commands from and
    -- next, reports from and next, ticks from and next, outbox number, outbox body, publisher epoch, outbox done (-1: none).
    UPDATE inbox_partitions p
       SET commands_next = partitions[k + 3],
           reports_next = partitions[k + 5],
           ticks_next = partitions[k + 7],
           outbox_last = CASE WHEN partitions[k + 8] > 0 THEN partitions[k + 8] ELSE p.outbox_last END
      FROM generate_series(1, cardinality(partitions), 12) k
     WHERE p.partition = partitions[k]
       AND p.epoch = partitions[k + 1]
       AND p.commands_next = partitions[k + 2]
       AND p.reports_next = partitions[k + 4]
       AND p.ticks_next = partitions[k + 6]
       AND (partitions[k + 8] = 0 OR p.outbox_last = partitions[k + 8] - 1);
    GET DIAGNOSTICS hits = ROW_COUNT;
    IF hits * 12 <> cardinality(partitions) THEN
        RAISE EXCEPTION 'a partition is not ours any more, or was not read from where its row says' USING ERRCODE = 'HF001';
    END IF;

    -- Stride 15: id, partition, namespace, workflow, run id, version, state, execution, sequence, fence, awaiting, error,
    -- created, updated, finished.
    IF cardinality(created) > 0 THEN
        INSERT INTO workflow_instances (
            instance_id, partition, namespace, workflow, run_id, version, state, execution, sequence, fence, awaiting,
            error, created_at, updated_at, finished_at, last_service)
        SELECT ids[created[k]], created[k + 1], texts[created[k + 2]], texts[created[k + 3]], texts[created[k + 4]],
               created[k + 5], texts[created[k + 6]], created[k + 7], created[k + 8], created[k + 9],
               texts[created[k + 10]], docs[created[k + 11]], times[created[k + 12]], times[created[k + 13]],
               times[created[k + 14]], service
          FROM generate_series(1, cardinality(created), 15) k
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS hits = ROW_COUNT;
        IF hits * 15 <> cardinality(created) THEN
            SELECT string_agg(i.instance_id::text, ' ') INTO missed
              FROM generate_series(1, cardinality(created), 15) k
              JOIN workflow_instances i ON i.instance_id = ids[created[k]]
             WHERE i.xmin <> pg_current_xact_id()::xid;
            RAISE EXCEPTION 'an instance exists already' USING ERRCODE = 'HF002', DETAIL = coalesce(missed, '');
        END IF;
    END IF;

    -- Stride 11: id, expected sequence, version, state, execution, sequence, fence, awaiting, error, updated, finished
    -- (-1: it was finished before and still is).
    IF cardinality(updated) > 0 THEN
        UPDATE workflow_instances i
           SET version = updated[k + 2],
               state = texts[updated[k + 3]],
               execution = updated[k + 4],
               sequence = updated[k + 5],
               fence = updated[k + 6],
               awaiting = texts[updated[k + 7]],
               error = docs[updated[k + 8]],
               updated_at = times[updated[k + 9]],
               finished_at = CASE updated[k + 10] WHEN -1 THEN i.finished_at ELSE times[updated[k + 10]] END,
               last_service = service
          FROM generate_series(1, cardinality(updated), 11) k
         WHERE i.instance_id = ids[updated[k]]
           AND i.sequence = updated[k + 1];
        GET DIAGNOSTICS hits = ROW_COUNT;
        IF hits * 11 <> cardinality(updated) THEN
            SELECT string_agg(ids[updated[k]]::text, ' ') INTO missed
              FROM generate_series(1, cardinality(updated), 11) k
              LEFT JOIN workflow_instances i ON i.instance_id = ids[updated[k]]
             WHERE i.sequence IS NULL OR i.xmin <> pg_current_xact_id()::xid;
            RAISE EXCEPTION 'an instance moved on without us' USING ERRCODE = 'HF002', DETAIL = coalesce(missed, '');
        END IF;
    END IF;

    -- Stride 8: id, sequence, execution, type, schema version, payload, occurred at, origin. An origin has stride 5: cause,
    -- actor type, actor id, trace id, span id.
    IF cardinality(events) > 0 THEN
        INSERT INTO events (
            instance_id, sequence, execution, type, schema_version, payload, occurred_at, caused_by, actor_type,
            actor_id, trace_id, span_id)
        SELECT ids[events[k]], events[k + 1], events[k + 2], texts[events[k + 3]], events[k + 4], docs[events[k + 5]],
               times[events[k + 6]], texts[origins[events[k + 7]]], texts[origins[events[k + 7] + 1]],
               texts[origins[events[k + 7] + 2]], texts[origins[events[k + 7] + 3]], texts[origins[events[k + 7] + 4]]
          FROM generate_series(1, cardinality(events), 8) k;
    END IF;

    -- Stride 13: id, execution, path, attempt, status, fence, queue, activity, holder, queued, started, ended, error.
    -- A change that does not name a time, a holder or an error leaves it as it is, just as `project` does when it adds up
    -- the events of one commit: so many commits give the same row as one, and `holdfast verify` can compare.
    IF cardinality(tasks) > 0 THEN
        INSERT INTO task_executions AS t (
            instance_id, execution, path, attempt, status, fence, queue, activity, holder, queued_at, started_at,
            ended_at, error)
        SELECT ids[tasks[k]], tasks[k + 1], texts[tasks[k + 2]], tasks[k + 3], texts[tasks[k + 4]], tasks[k + 5],
               texts[tasks[k + 6]], texts[tasks[k + 7]], texts[tasks[k + 8]], times[tasks[k + 9]],
               times[tasks[k + 10]], times[tasks[k + 11]], docs[tasks[k + 12]]
          FROM generate_series(1, cardinality(tasks), 13) k
        ON CONFLICT (instance_id, execution, path, attempt) DO UPDATE
           SET status = excluded.status,
               fence = excluded.fence,
               queue = excluded.queue,
               activity = excluded.activity,
               queued_at = coalesce(excluded.queued_at, t.queued_at),
               holder = coalesce(excluded.holder, t.holder),
               started_at = coalesce(excluded.started_at, t.started_at),
               ended_at = coalesce(excluded.ended_at, t.ended_at),
               error = coalesce(excluded.error, t.error);
    END IF;

    -- Stride 2: id, path.
    IF cardinality(leases_ended) > 0 THEN
        DELETE FROM execution_leases l
         USING generate_series(1, cardinality(leases_ended), 2) k
         WHERE l.instance_id = ids[leases_ended[k]] AND l.path = texts[leases_ended[k + 1]];
    END IF;

    -- Stride 10: id, path, execution, attempt, fence, holder, address, since, expires, timeout.
    IF cardinality(leases) > 0 THEN
        INSERT INTO execution_leases AS l (
            instance_id, path, partition, execution, attempt, fence, holder, address, since, expires_at, timeout_at,
            lease_s)
        SELECT i.instance_id, texts[leases[k + 1]], i.partition, leases[k + 2], leases[k + 3], leases[k + 4],
               texts[leases[k + 5]], texts[leases[k + 6]], times[leases[k + 7]], times[leases[k + 8]],
               times[leases[k + 9]], lease_seconds[(k + 9) / 10]
          FROM generate_series(1, cardinality(leases), 10) k
          JOIN workflow_instances i ON i.instance_id = ids[leases[k]]
        ON CONFLICT (instance_id, path) DO UPDATE
           SET execution = excluded.execution,
               attempt = excluded.attempt,
               fence = excluded.fence,
               holder = excluded.holder,
               address = excluded.address,
               since = excluded.since,
               expires_at = excluded.expires_at,
               timeout_at = excluded.timeout_at,
               lease_s = excluded.lease_s,
               renewals = 0,
               details = NULL
         WHERE l.fence <= excluded.fence;
    END IF;

    -- Stride 6: id, path, fence, renewals, expires, details. Heartbeats of an attempt that was replaced hit no row.
    IF cardinality(renewals) > 0 THEN
        UPDATE execution_leases l
           SET renewals = renewals[k + 3],
               expires_at = times[renewals[k + 4]],
               details = coalesce(docs[renewals[k + 5]], l.details)
          FROM generate_series(1, cardinality(renewals), 6) k
         WHERE l.instance_id = ids[renewals[k]]
           AND l.path = texts[renewals[k + 1]]
           AND l.fence = renewals[k + 2]
           AND l.renewals < renewals[k + 3];
    END IF;

    -- Stride 2: id, key.
    IF cardinality(timers_gone) > 0 THEN
        DELETE FROM timers t
         USING generate_series(1, cardinality(timers_gone), 2) k
         WHERE t.instance_id = ids[timers_gone[k]] AND t.key = texts[timers_gone[k + 1]];
    END IF;

    -- Stride 4: id, key, token, due. A new schedule is a new row in all but its key: nobody has claimed or sent it.
    IF cardinality(timers) > 0 THEN
        INSERT INTO timers (instance_id, key, partition, token, due_at)
        SELECT i.instance_id, texts[timers[k + 1]], i.partition, timers[k + 2], times[timers[k + 3]]
          FROM generate_series(1, cardinality(timers), 4) k
          JOIN workflow_instances i ON i.instance_id = ids[timers[k]]
        ON CONFLICT (instance_id, key) DO UPDATE
           SET token = excluded.token,
               due_at = excluded.due_at,
               claimed_until = NULL,
               sent_at = NULL,
               sent_offset = NULL;
    END IF;

    -- Stride 9: id, source, id of the command, instance key, type, digest, outcome, reason, received.
    IF cardinality(commands) > 0 THEN
        INSERT INTO command_log (instance_id, source, id, instance, type, digest, outcome, reason, received_at)
        SELECT ids[commands[k]], texts[commands[k + 1]], texts[commands[k + 2]], texts[commands[k + 3]],
               texts[commands[k + 4]], blobs[commands[k + 5]], texts[commands[k + 6]], texts[commands[k + 7]],
               times[commands[k + 8]]
          FROM generate_series(1, cardinality(commands), 9) k
        ON CONFLICT (instance_id, source, id) DO NOTHING;
        GET DIAGNOSTICS hits = ROW_COUNT;
        IF hits * 9 <> cardinality(commands) THEN
            SELECT string_agg(DISTINCT c.instance_id::text, ' ') INTO missed
              FROM generate_series(1, cardinality(commands), 9) k
              JOIN command_log c ON c.instance_id = ids[commands[k]] AND c.source = texts[commands[k + 1]]
                                AND c.id = texts[commands[k + 2]]
             WHERE c.xmin <> pg_current_xact_id()::xid;
            RAISE EXCEPTION 'a command is on record already' USING ERRCODE = 'HF002', DETAIL = coalesce(missed, '');
        END IF;
    END IF;

    -- Stride 10: as above and how often. A repeat of what is on record only counts there.
    IF cardinality(repeats) > 0 THEN
        INSERT INTO command_log AS c (
            instance_id, source, id, instance, type, digest, outcome, reason, received_at, duplicates)
        SELECT ids[repeats[k]], texts[repeats[k + 1]], texts[repeats[k + 2]], texts[repeats[k + 3]],
               texts[repeats[k + 4]], blobs[repeats[k + 5]], texts[repeats[k + 6]], texts[repeats[k + 7]],
               times[repeats[k + 8]], repeats[k + 9] - 1
          FROM generate_series(1, cardinality(repeats), 10) k
        ON CONFLICT (instance_id, source, id) DO UPDATE SET duplicates = c.duplicates + excluded.duplicates + 1;
    END IF;

    -- Stride 4: id, sequence, shape, body.
    IF cardinality(snapshots) > 0 THEN
        INSERT INTO snapshots AS s (instance_id, sequence, shape, body)
        SELECT ids[snapshots[k]], snapshots[k + 1], snapshots[k + 2], blobs[snapshots[k + 3]]
          FROM generate_series(1, cardinality(snapshots), 4) k
        ON CONFLICT (instance_id) DO UPDATE
           SET sequence = excluded.sequence, shape = excluded.shape, body = excluded.body, written_at = clock_timestamp()
         WHERE s.sequence < excluded.sequence;
    END IF;

    IF cardinality(rare) > 0 THEN
        PERFORM commit_parking(ids, texts, times, blobs, rare, parking);
    END IF;

    SELECT o.lost, o.unhosted INTO publisher_lost, relay_waiting FROM commit_outbox(partitions, blobs) o;
    IF relay_waiting THEN
        relay_waiting := EXISTS (SELECT FROM relay_waiting w WHERE w.until > clock_timestamp());
    END IF;
    now := clock_timestamp();
END
$$;

-- The two parts below run inside `commit_batch` and under its settings.

-- The way out: this commit's row of each partition, and what the hosted publisher has got acknowledged since the last one.
CREATE FUNCTION holdfast.commit_outbox(partitions bigint[], blobs bytea[], OUT lost integer[], OUT unhosted boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    held integer[];
    hosted bigint := 0;
BEGIN
    unhosted := false;
    FOR k IN 1 .. cardinality(partitions) BY 12 LOOP
        IF partitions[k + 8] > 0 THEN
            unhosted := unhosted OR partitions[k + 10] < 0;
        END IF;
        IF partitions[k + 10] >= 0 THEN
            hosted := hosted + 1;
        END IF;
    END LOOP;

    INSERT INTO outbox (partition, number, body)
    SELECT partitions[k], partitions[k + 8], blobs[partitions[k + 9]]
      FROM generate_series(1, cardinality(partitions), 12) k
     WHERE partitions[k + 8] > 0;

    lost := '{}';
    IF hosted = 0 THEN
        RETURN;
    END IF;

    -- The row joined to itself gives `done` as it was: what is below is deleted already, and scanning over those dead
    -- rows again with each commit would grow without bound until the next vacuum.
    WITH moved AS (
        UPDATE outbox_partitions p
           SET done = greatest(p.done, partitions[k + 11]),
               lease_until = clock_timestamp() + p.lease_s * interval '1 second'
          FROM generate_series(1, cardinality(partitions), 12) k
          JOIN outbox_partitions was ON was.partition = partitions[k]
         WHERE p.partition = partitions[k] AND p.epoch = partitions[k + 10]
        RETURNING p.partition, was.done AS above, p.done AS upto
    ), deleted AS (
        DELETE FROM outbox o USING moved m
         WHERE o.partition = m.partition AND o.number > m.above AND o.number <= m.upto
    )
    SELECT array_agg(m.partition) INTO held FROM moved m;

    IF coalesce(cardinality(held), 0) <> hosted THEN
        SELECT array_agg(partitions[k]::integer) INTO lost
          FROM generate_series(1, cardinality(partitions), 12) k
         WHERE partitions[k + 10] >= 0 AND partitions[k] <> ALL (coalesce(held, '{}'));
        unhosted := true;
    END IF;
END
$$;

-- What a bad input leaves behind: rejected reports that are only counted (stride 4: id, path, fence, count), inputs to
-- park (stride 11: id, partition, instance key, topic, offset, key, value, headers, error, parked at, place in this
-- batch), parked inputs that were decided (stride 2: id, number), and tries (stride 5: id, tries, next try, error,
-- quarantine). `rare` has the length of each section.
CREATE FUNCTION holdfast.commit_parking(
    ids uuid[], texts text[], times timestamptz[], blobs bytea[], rare bigint[], parking bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    rejected bigint := rare[1];
    parked bigint := rejected + rare[2];
    unparked bigint := parked + rare[3];
    tried bigint := unparked + rare[4];
BEGIN
    INSERT INTO report_rejections AS r (instance_id, path, fence, count)
    SELECT ids[parking[k]], texts[parking[k + 1]], parking[k + 2], parking[k + 3]
      FROM generate_series(1, rejected, 4) k
    ON CONFLICT (instance_id, path, fence) DO UPDATE SET count = r.count + excluded.count, last_at = clock_timestamp();

    INSERT INTO parked_instances (instance_id, partition, instance, next_try_at, parked_at)
    SELECT ids[parking[k]], parking[k + 1], texts[parking[k + 2]], times[parking[k + 9]], times[parking[k + 9]]
      FROM generate_series(rejected + 1, parked, 11) k
    ON CONFLICT (instance_id) DO NOTHING;

    -- Numbers go on from the last one, so that the order of arrival is kept over many commits.
    INSERT INTO parked_inputs (
        instance_id, number, partition, instance, topic, "offset", key, value, headers, error, parked_at)
    SELECT ids[parking[k]],
           coalesce((SELECT max(p.number) FROM parked_inputs p WHERE p.instance_id = ids[parking[k]]), 0) + parking[k + 10],
           parking[k + 1], texts[parking[k + 2]], texts[parking[k + 3]], parking[k + 4], blobs[parking[k + 5]],
           blobs[parking[k + 6]], blobs[parking[k + 7]], texts[parking[k + 8]], times[parking[k + 9]]
      FROM generate_series(rejected + 1, parked, 11) k;

    IF rare[3] > 0 THEN
        DELETE FROM parked_inputs p
         USING generate_series(parked + 1, unparked, 2) k
         WHERE p.instance_id = ids[parking[k]] AND p.number = parking[k + 1];

        -- The next one in line has had no try yet, and may be tried at once.
        UPDATE parked_instances p
           SET tries = 0, next_try_at = clock_timestamp(), error = ''
          FROM (SELECT DISTINCT ids[parking[k]] AS id FROM generate_series(parked + 1, unparked, 2) k) u
         WHERE p.instance_id = u.id;
    END IF;

    UPDATE parked_instances p
       SET tries = parking[k + 1],
           next_try_at = times[parking[k + 2]],
           error = texts[parking[k + 3]],
           quarantined_at = CASE WHEN parking[k + 4] = 1 THEN coalesce(p.quarantined_at, clock_timestamp()) END
      FROM generate_series(unparked + 1, tried, 5) k
     WHERE p.instance_id = ids[parking[k]];

    WITH let_go AS (
        DELETE FROM parked_instances p
         USING (SELECT DISTINCT ids[parking[k]] AS id FROM generate_series(parked + 1, unparked, 2) k) u
         WHERE p.instance_id = u.id AND NOT EXISTS (SELECT FROM parked_inputs i WHERE i.instance_id = u.id)
        RETURNING p.instance_id
    ), marks AS (
        SELECT ids[parking[k]] AS id, parking[k + 4] = 1 AS frozen, texts[parking[k + 3]] AS error
          FROM generate_series(unparked + 1, tried, 5) k
         WHERE ids[parking[k]] NOT IN (SELECT g.instance_id FROM let_go g)
        UNION ALL
        SELECT g.instance_id, false, NULL FROM let_go g
    ), marked AS (
        UPDATE workflow_instances i
           SET quarantined_at = CASE WHEN m.frozen THEN coalesce(i.quarantined_at, clock_timestamp()) END,
               quarantine_reason = CASE WHEN m.frozen THEN m.error END
          FROM marks m
         WHERE i.instance_id = m.id AND (m.frozen OR i.quarantined_at IS NOT NULL)
    ), timers_marked AS (
        UPDATE timers t SET frozen = m.frozen FROM marks m WHERE t.instance_id = m.id AND t.frozen <> m.frozen
    )
    UPDATE execution_leases l SET frozen = m.frozen FROM marks m WHERE l.instance_id = m.id AND l.frozen <> m.frozen;
END
$$;
