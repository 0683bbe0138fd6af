-- Claims one suspect that is due, to be run with nothing beside it. Called by PostgreSQLEngine.claim_suspect.
-- Of those that were lost least often, the one due longest: when whole trees are killed, from ordinary processes as well,
-- the suspect that runs meanwhile is charged each time. So that is spread over all of them, and the innocent end first.
-- Suspects are few, and have an index of their own: what other reasons have parked is not read.
UPDATE django_jobs_job
   SET status = 'running', parked = NULL, token = token + 1, locked_by = %(locked_by)s,
       locked_until = clock_timestamp() + %(lease)s::float8 * interval '1 second',
       started_at = COALESCE(started_at, statement_timestamp()),
       last_started_at = statement_timestamp(),
       idempotency_key = CASE WHEN key_holds = 'waiting' THEN NULL ELSE idempotency_key END
 WHERE id = ANY (ARRAY(
        SELECT id
          FROM django_jobs_job
         WHERE parked = 'suspect' AND status = 'ready' AND run_at <= statement_timestamp()
           AND type = ANY (%(types)s::text[])
           AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
           AND NOT EXISTS (SELECT 1
                             FROM django_jobs_pause pause
                            WHERE (until IS NULL OR until > statement_timestamp())
                              AND pause.name = CASE kind WHEN 'queue' THEN queue ELSE type END)
           AND (%(deployment)s::text IS NULL OR (SELECT name FROM django_jobs_deployment) IN ('', %(deployment)s::text))
         ORDER BY losses, run_at, id
         LIMIT least(%(limit)s::bigint, 1)
           FOR UPDATE SKIP LOCKED))
RETURNING parked, id, token, locked_by, type, payload::text, attempts, max_attempts,
          CASE WHEN key_holds = 'window' THEN idempotency_key END, timeout, slot,
          extract(epoch FROM expires_at - statement_timestamp())::float8,
          queue, priority, date_part('epoch', run_at),
          date_part('epoch', statement_timestamp()) - date_part('epoch', run_at), losses, meta ->> 'trace'
