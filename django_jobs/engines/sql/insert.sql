-- Stores one job in the caller's transaction. Called by PostgreSQLEngine.insert, for which sessions keep it prepared: of some
-- 170 us that it takes over the loopback, parsing and planning it anew would take 65 more, and returning all columns 30.
-- Times come back as microseconds, which the client reads in a tenth of the time. What is not returned it was given, or is the column's default.
-- statement_timestamp(), not now(): a delay counts from this statement, however old the transaction is.
INSERT INTO django_jobs_job
    (type, queue, priority, payload, idempotency_key, key_holds, run_at, expires_at, max_attempts, timeout, meta,
     schedule, slot)
VALUES
    (%(type)s, %(queue)s, %(priority)s, %(payload)s::jsonb, %(idempotency_key)s, %(key_holds)s,
     COALESCE(%(run_at)s::timestamptz, statement_timestamp() + %(delay)s::float8 * interval '1 second'),
     COALESCE(%(expires_at)s::timestamptz, statement_timestamp() + %(expires_in)s::float8 * interval '1 second'),
     %(max_attempts)s, %(timeout)s::float8, %(meta)s::jsonb,
     %(schedule)s, %(slot)s::timestamptz)
RETURNING id, (extract(epoch FROM run_at) * 1000000)::bigint AS run_at,
          (extract(epoch FROM expires_at) * 1000000)::bigint AS expires_at,
          (extract(epoch FROM created_at) * 1000000)::bigint AS created_at
