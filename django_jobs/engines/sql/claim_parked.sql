-- Claims due jobs that a worker without their type had parked, or that a pause had which is over. Called by
-- PostgreSQLEngine.claim_parked, and only when a look has found some. They are taken where they are: un-parking them first
-- would hand them to the same ignorant workers, and make the end of a pause a write to every job that it held.
WITH paused AS MATERIALIZED (
    SELECT array_agg(name) FILTER (WHERE kind = 'queue') AS queues, array_agg(name) FILTER (WHERE kind = 'type') AS types
      FROM django_jobs_pause
     WHERE until IS NULL OR until > statement_timestamp()
), picked AS (
    SELECT due.id
      FROM unnest(%(types)s::text[]) known(type)
     CROSS JOIN LATERAL (
        SELECT id
          FROM django_jobs_job
         WHERE parked IS NOT NULL AND parked IN ('type', 'pause') AND status = 'ready' AND run_at <= statement_timestamp()
           AND type = known.type
           AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
           AND queue <> ALL (COALESCE((SELECT queues FROM paused), '{}'))
         ORDER BY priority DESC, run_at, id
         LIMIT %(limit)s
           FOR UPDATE SKIP LOCKED
     ) due
     WHERE known.type <> ALL (COALESCE((SELECT types FROM paused), '{}'))
     LIMIT %(limit)s
)
UPDATE django_jobs_job
   SET status = 'running', parked = NULL, token = token + 1, locked_by = %(locked_by)s,
       locked_until = clock_timestamp() + %(lease)s::float8 * interval '1 second',
       started_at = COALESCE(started_at, statement_timestamp()),
       last_started_at = statement_timestamp(),
       idempotency_key = CASE WHEN key_holds = 'waiting' THEN NULL ELSE idempotency_key END
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
RETURNING priority, run_at, parked, id, token, type, payload::text, attempts, max_attempts,
          CASE WHEN key_holds = 'window' THEN idempotency_key END, timeout, slot,
          COALESCE(expires_at <= statement_timestamp(), false)
