-- Claims due jobs that a worker without their type had parked. Called by PostgreSQLEngine.claim_parked, and only when a
-- look has found some. They are taken where they are: un-parking them first would hand them to the same ignorant workers.
WITH picked AS (
    SELECT due.id
      FROM unnest(%(types)s::text[]) known(type)
     CROSS JOIN LATERAL (
        SELECT id
          FROM django_jobs_job
         WHERE parked IS NOT NULL AND parked = 'type' AND status = 'ready' AND run_at <= statement_timestamp()
           AND type = known.type
           AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
         ORDER BY priority DESC, run_at, id
         LIMIT %(limit)s
           FOR UPDATE SKIP LOCKED
     ) due
     LIMIT %(limit)s
)
UPDATE django_jobs_job
   SET status = 'running', parked = NULL, token = token + 1, locked_by = %(locked_by)s,
       locked_until = clock_timestamp() + %(lease)s::float8 * interval '1 second',
       started_at = COALESCE(started_at, statement_timestamp()),
       last_started_at = statement_timestamp()
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
RETURNING priority, run_at, parked, id, token, type, payload::text, attempts, max_attempts, idempotency_key, timeout, slot
