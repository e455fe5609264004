-- Taking partitions. A function, because it takes two looks: the second statement sees what the one before us committed
-- while we waited for its lock. In one statement the offsets would be new and the list of parked instances old, and an
-- input of an instance that was parked at the last moment would overtake.
--
-- Error HF004: a partition is not here.

CREATE FUNCTION holdfast.claim_partitions(wanted integer[], holder text, publish boolean, publisher_lease_s double precision)
RETURNS TABLE (
    partition integer,
    epoch bigint,
    commands_next bigint,
    reports_next bigint,
    ticks_next bigint,
    outbox_last bigint,
    publisher_epoch bigint,
    outbox_done bigint,
    parked uuid[],
    now timestamptz
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    missing text;
BEGIN
    -- In partition order, because two coordinators may claim overlapping sets during a rebalance.
    PERFORM p.partition FROM holdfast.inbox_partitions p
      WHERE p.partition = ANY (wanted) ORDER BY p.partition FOR UPDATE;

    SELECT string_agg(CASE WHEN p.partition IS NULL THEN 'partition ' || w.partition || ' has no row in this database'
                           ELSE 'partition ' || w.partition || ' moved to ' || p.moved_to END, ', ' ORDER BY w.partition)
      INTO missing
      FROM unnest(wanted) w (partition)
      LEFT JOIN holdfast.inbox_partitions p ON p.partition = w.partition
     WHERE p.partition IS NULL OR p.moved_to IS NOT NULL;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION '%', missing USING ERRCODE = 'HF004';
    END IF;

    -- The new epoch fences whoever had the partition before.
    UPDATE holdfast.inbox_partitions p
       SET epoch = p.epoch + 1, holder = claim_partitions.holder, claimed_at = clock_timestamp()
     WHERE p.partition = ANY (wanted);

    IF publish THEN
        PERFORM o.partition FROM holdfast.outbox_partitions o
          WHERE o.partition = ANY (wanted) ORDER BY o.partition FOR UPDATE;
        UPDATE holdfast.outbox_partitions o
           SET epoch = o.epoch + 1, holder = claim_partitions.holder, lease_s = publisher_lease_s,
               lease_until = clock_timestamp() + publisher_lease_s * interval '1 second'
         WHERE o.partition = ANY (wanted);
    END IF;

    RETURN QUERY
    SELECT p.partition, p.epoch, p.commands_next, p.reports_next, p.ticks_next, p.outbox_last,
           CASE WHEN publish THEN o.epoch END, o.done,
           ARRAY(SELECT i.instance_id FROM holdfast.parked_instances i WHERE i.partition = p.partition), clock_timestamp()
      FROM holdfast.inbox_partitions p
      JOIN holdfast.outbox_partitions o ON o.partition = p.partition
     WHERE p.partition = ANY (wanted)
     ORDER BY p.partition;
END
$$;
