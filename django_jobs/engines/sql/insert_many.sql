-- Stores many jobs in the caller's transaction, in the order given, and returns their ids in that order: NULL where the
-- key is taken. Called by PostgreSQLEngine.insert_many. The order is that in which locks on keys are taken, so that two
-- callers that sort by key cannot deadlock. Ids are drawn first, since RETURNING promises no order. What jobs have in
-- common comes once, numbered from 1, and `which` says of each job the number: nothing when all have the same. Texts are
-- read here, and no arrays given: for each element of an array the client takes 1 us.
WITH terms AS MATERIALIZED (
    SELECT *
      FROM ROWS FROM (
               json_to_recordset(%(terms)s::json)
               AS (type text, queue text, priority int, key_holds text, run_at timestamptz, delay float8,
                   expires_at timestamptz, expires_in float8, max_attempts int, timeout float8, meta text, schedule text,
                   slot timestamptz))
           WITH ORDINALITY
           AS terms(type, queue, priority, key_holds, run_at, delay, expires_at, expires_in, max_attempts, timeout, meta,
                    schedule, slot, number)
), given AS MATERIALIZED (
    SELECT nextval(pg_get_serial_sequence('django_jobs_job', 'id')) AS id, payload, key,
           COALESCE(which::bigint, 1) AS number, place
      FROM ROWS FROM (string_to_table(%(payloads)s::text, chr(10)), string_to_table(%(which)s::text, ','),
                      json_array_elements_text(%(keys)s::json))
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
