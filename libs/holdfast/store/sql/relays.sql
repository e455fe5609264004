-- What the relays of one database need to know of each other, and what an operator wants to know of the outbox.

-- name: shares
-- A relay that holds nothing is seen by its connections, whose application_name ends with its holder name. That is only
-- about fairness: who is not seen gets less, and nothing is left lying.
WITH live AS (
    SELECT holder, lease_until > clock_timestamp() AS held, starts_with(holder, 'relay/') AS by_relay
      FROM holdfast.outbox_partitions
), relays AS (
    SELECT holder FROM live WHERE held AND by_relay
     UNION
    SELECT substr(application_name, 10) FROM pg_stat_activity
     WHERE datname = current_database() AND starts_with(application_name, 'holdfast relay/')
)
SELECT count(*) FILTER (WHERE NOT held) AS free,
       count(*) FILTER (WHERE held AND by_relay) AS by_relays,
       (SELECT count(*) FROM relays) AS relays
  FROM live

-- name: outbox_stats
-- `done` is where the rows that are left begin: without it the primary key would be read over everything deleted before.
SELECT coalesce(sum(p.outbox_last - o.done), 0)::bigint AS rows,
       coalesce(extract(epoch FROM clock_timestamp() - min(oldest.written_at)), 0)::float8 AS oldest_s,
       (SELECT count(*) FROM holdfast.outbox_parked) AS parked
  FROM holdfast.outbox_partitions o
  JOIN holdfast.inbox_partitions p ON p.partition = o.partition
  LEFT JOIN LATERAL (
       SELECT written_at FROM holdfast.outbox b
        WHERE b.partition = o.partition AND b.number > o.done
        ORDER BY b.number LIMIT 1) oldest ON true
