-- What the services may do. Every connection of a service takes this role, also when its login owns the tables, so that
-- no bug and no injected statement changes history: events can be read and added, nothing else.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_service') THEN
        BEGIN
            CREATE ROLE holdfast_service NOLOGIN;
        EXCEPTION
            -- Roles belong to the whole server: another database may be migrated at this moment.
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION 'the role holdfast_service does not exist and % may not create it', current_user
                    USING ERRCODE = 'HF003',
                          HINT = format('as an administrator: CREATE ROLE holdfast_service NOLOGIN; GRANT holdfast_service TO %I;',
                                        current_user);
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'holdfast_service', 'MEMBER') THEN
        BEGIN
            EXECUTE format('GRANT holdfast_service TO %I', current_user);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE EXCEPTION '% is not a member of holdfast_service and may not add itself', current_user
                USING ERRCODE = 'HF003',
                      HINT = format('as an administrator: GRANT holdfast_service TO %I;', current_user);
        END;
    END IF;
END
$$;

GRANT USAGE ON SCHEMA holdfast TO holdfast_service;
GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO holdfast_service;
GRANT INSERT ON holdfast.events, holdfast.workflow_definitions TO holdfast_service;
GRANT INSERT, UPDATE ON holdfast.workflow_instances, holdfast.snapshots, holdfast.task_executions, holdfast.command_log,
    holdfast.report_rejections TO holdfast_service;
GRANT INSERT, UPDATE, DELETE ON holdfast.execution_leases, holdfast.timers, holdfast.outbox, holdfast.outbox_parked,
    holdfast.relay_waiting, holdfast.parked_inputs, holdfast.parked_instances TO holdfast_service;
-- Rows of partitions exist in exactly one Postgres: services take them, they never make them.
GRANT UPDATE ON holdfast.inbox_partitions, holdfast.outbox_partitions TO holdfast_service;
