-- Stores many jobs in the caller's transaction, in the order given, and returns their ids in that order: NULL where the
-- key is taken. Called by PostgreSQLEngine.insert_many. The order is that in which locks on keys are taken, so that two
-- callers that sort by key cannot deadlock. Ids are drawn first, since RETURNING promises no order. What jobs have in
-- common comes once, numbered from 1, and `which` says of each job the number: nothing when all have the same.
WITH terms AS (
    SELECT *
      FROM unnest(%(types)s::text[], %(queues)s::text[], %(priorities)s::int[], %(holds)s::text[],
                  %(run_ats)s::timestamptz[], %(delays)s::float8[], %(expires_ats)s::timestamptz[],
                  %(expires_ins)s::float8[], %(max_attempts)s::int[], %(timeouts)s::float8[], %(metas)s::text[],
                  %(schedules)s::text[], %(slots)s::timestamptz[])
           WITH ORDINALITY
           AS terms(type, queue, priority, key_holds, run_at, delay, expires_at, expires_in, max_attempts, timeout, meta,
                    schedule, slot, number)
), given AS MATERIALIZED (
    SELECT nextval(pg_get_serial_sequence('django_jobs_job', 'id')) AS id, payload, key, COALESCE(which, 1) AS number, place
      FROM ROWS FROM (string_to_table(%(payloads)s::text, chr(10)), unnest(%(which)s::int[]), unnest(%(keys)s::text[]))
           WITH ORDINALITY AS given(payload, which, key, place)
), made AS (
    INSERT INTO django_jobs_job
        (id, type, queue, priority, payload, idempotency_key, key_holds, run_at, expires_at, max_attempts, timeout, meta,
         schedule, slot)
    SELECT id, type, queue, priority, payload::jsonb, key, key_holds,
           COALESCE(run_at, statement_timestamp() + delay * interval '1 second'),
           COALESCE(expires_at, statement_timestamp() + expires_in * interval '1 second'),
           max_attempts, timeout, meta::jsonb, schedule, slot
      FROM given JOIN terms USING (number)
     ORDER BY place
        ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id
)
SELECT made.id
  FROM given LEFT JOIN made USING (id)
 ORDER BY given.place
