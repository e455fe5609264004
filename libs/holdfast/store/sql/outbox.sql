-- Statements of the relay. The epoch fences: a publisher that lost its lease can repeat messages, never move `done`.

-- name: claim_publishers
-- SKIP LOCKED: a row that is being written belongs to a hosted publisher that is alive.
WITH free AS (
    SELECT partition FROM holdfast.outbox_partitions
     WHERE lease_until <= clock_timestamp()
     ORDER BY partition
     LIMIT greatest(0, $3::integer - (SELECT count(*) FROM holdfast.outbox_partitions
                                       WHERE holder = $1 AND lease_until > clock_timestamp()))
       FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.outbox_partitions p
   SET epoch = p.epoch + 1, holder = $1, lease_s = $2::float8,
       lease_until = clock_timestamp() + $2::float8 * interval '1 second'
  FROM free
 WHERE p.partition = free.partition
RETURNING p.partition, p.epoch, p.done

-- name: renew_publishers
UPDATE holdfast.outbox_partitions p
   SET lease_s = $4::float8, lease_until = clock_timestamp() + $4::float8 * interval '1 second'
  FROM unnest($2::integer[], $3::bigint[]) mine (partition, epoch)
 WHERE p.partition = mine.partition AND p.epoch = mine.epoch AND p.holder = $1
RETURNING p.partition

-- name: release_publishers
UPDATE holdfast.outbox_partitions p
   SET lease_until = '-infinity', holder = ''
  FROM unnest($2::integer[], $3::bigint[]) mine (partition, epoch)
 WHERE p.partition = mine.partition AND p.epoch = mine.epoch AND p.holder = $1

-- name: read_outbox
SELECT o.partition, o.number, o.body
  FROM unnest($1::integer[], $2::bigint[]) wanted (partition, after)
 CROSS JOIN LATERAL (
       SELECT * FROM holdfast.outbox o
        WHERE o.partition = wanted.partition AND o.number > wanted.after
        ORDER BY o.number
        LIMIT $3) o

-- name: advance
-- `was` gives `done` as it was, so that the delete does not scan over what earlier ones have left for vacuum.
WITH moved AS (
    UPDATE holdfast.outbox_partitions p
       SET done = greatest(p.done, mine.done)
      FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) mine (partition, epoch, done)
      JOIN holdfast.outbox_partitions was ON was.partition = mine.partition
     WHERE p.partition = mine.partition AND p.epoch = mine.epoch
    RETURNING p.partition, was.done AS above, p.done AS upto
), deleted AS (
    DELETE FROM holdfast.outbox o USING moved m
     WHERE o.partition = m.partition AND o.number > m.above AND o.number <= m.upto
)
SELECT partition FROM moved

-- name: park_outbox
INSERT INTO holdfast.outbox_parked (partition, number, position, topic, instance, body, error)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING

-- name: parked_instances
SELECT DISTINCT instance FROM holdfast.outbox_parked WHERE partition = ANY ($1::integer[])

-- name: mark_waiting
-- Marks of relays that died in their sleep go with it.
WITH gone AS (
    DELETE FROM holdfast.relay_waiting WHERE until < clock_timestamp() - interval '1 hour' AND holder <> $1
)
INSERT INTO holdfast.relay_waiting (holder, until) VALUES ($1, clock_timestamp() + $2::float8 * interval '1 second')
ON CONFLICT (holder) DO UPDATE SET until = excluded.until

-- name: unmark_waiting
DELETE FROM holdfast.relay_waiting WHERE holder = $1

-- name: anything_new
SELECT EXISTS (
    SELECT FROM unnest($1::integer[], $2::bigint[]) seen (partition, after)
      JOIN holdfast.inbox_partitions p ON p.partition = seen.partition AND p.outbox_last > seen.after)
