-- Stores one job unless its key is taken; then all columns are NULL. Called by PostgreSQLEngine.insert_keyed.
-- It waits for another transaction that holds the key as long as it is told, and sets the caller's own lock_timeout again,
-- in one round trip: `bound` is read before the row to insert is made, and the last SELECT when that is there or was not.
WITH bound AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', %(lock_timeout)s, true)
), made AS (
    INSERT INTO django_jobs_job
        (type, queue, priority, payload, idempotency_key, key_holds, run_at, expires_at, max_attempts, timeout, meta,
         schedule, slot)
    SELECT %(type)s, %(queue)s, %(priority)s::int, %(payload)s::jsonb, %(idempotency_key)s, %(key_holds)s,
           COALESCE(%(run_at)s::timestamptz, statement_timestamp() + %(delay)s::float8 * interval '1 second'),
           COALESCE(%(expires_at)s::timestamptz, statement_timestamp() + %(expires_in)s::float8 * interval '1 second'),
           %(max_attempts)s::int, %(timeout)s::float8, %(meta)s::jsonb, %(schedule)s, %(slot)s::timestamptz
      FROM bound
        ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, (extract(epoch FROM run_at) * 1000000)::bigint AS run_at,
              (extract(epoch FROM expires_at) * 1000000)::bigint AS expires_at,
              (extract(epoch FROM created_at) * 1000000)::bigint AS created_at
)
SELECT made.*, set_config('lock_timeout', bound.before, true)
  FROM bound LEFT JOIN made ON true
