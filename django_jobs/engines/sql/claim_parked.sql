-- Claims due jobs that a worker without their type had parked, or that a pause had which is over. Called by
-- PostgreSQLEngine.claim_parked, and only when a look has found some. They are taken where they are: un-parking them first
-- would hand them to the same ignorant workers, and make the end of a pause a write to every job that it held.
-- As in claim.sql, `lane` walks the (type, queue, priority) present with one index probe each, so that neither what waits
-- in a paused queue nor what is of a paused type is read, however much it is, and the urgent of all types comes first.
WITH RECURSIVE paused AS MATERIALIZED (
    SELECT kind, name FROM django_jobs_pause WHERE until IS NULL OR until > statement_timestamp()
), allowed AS MATERIALIZED (
    SELECT ARRAY(SELECT name::text FROM paused WHERE kind = 'queue') AS not_queues,
           ARRAY(SELECT unnest(%(types)s::text[]) EXCEPT SELECT name FROM paused WHERE kind = 'type') AS types
     WHERE %(deployment)s::text IS NULL OR (SELECT name FROM django_jobs_deployment) IN ('', %(deployment)s::text)
), lane AS (
    SELECT known.type, first.queue, first.priority, first.run_at
      FROM allowed CROSS JOIN LATERAL unnest(allowed.types) known(type) CROSS JOIN LATERAL (
        SELECT queue, priority, run_at
          FROM django_jobs_job
         WHERE parked IS NOT NULL AND parked IN ('type', 'pause') AND type = known.type
         ORDER BY queue, priority DESC, run_at
         LIMIT 1
      ) first
    UNION ALL
    SELECT lane.type, next.queue, next.priority, next.run_at
      FROM lane CROSS JOIN LATERAL (
        (SELECT queue, priority, run_at
           FROM django_jobs_job
          WHERE parked IS NOT NULL AND parked IN ('type', 'pause')
            AND type = lane.type AND queue = lane.queue AND priority < lane.priority
          ORDER BY queue, priority DESC, run_at
          LIMIT 1)
        UNION ALL
        (SELECT queue, priority, run_at
           FROM django_jobs_job
          WHERE parked IS NOT NULL AND parked IN ('type', 'pause') AND type = lane.type AND queue > lane.queue
          ORDER BY queue, priority DESC, run_at
          LIMIT 1)
        LIMIT 1
      ) next
), picked AS (
    SELECT due.id
      FROM (SELECT lane.type, lane.queue, lane.priority
              FROM lane CROSS JOIN allowed
             WHERE lane.run_at <= statement_timestamp()
               AND (%(queues)s::text[] IS NULL OR lane.queue = ANY (%(queues)s::text[]))
               AND lane.queue <> ALL (allowed.not_queues)
             ORDER BY lane.priority DESC, lane.run_at) open_lane
     CROSS JOIN LATERAL (
        SELECT id
          FROM django_jobs_job
         WHERE parked IS NOT NULL AND parked IN ('type', 'pause') AND status = 'ready' AND run_at <= statement_timestamp()
           AND type = open_lane.type AND queue = open_lane.queue AND priority = open_lane.priority
         ORDER BY run_at, id
         LIMIT %(limit)s
           FOR UPDATE SKIP LOCKED
     ) due
     LIMIT %(limit)s
)
UPDATE django_jobs_job
   SET status = 'running', parked = NULL, token = token + 1, locked_by = %(locked_by)s,
       locked_until = clock_timestamp() + %(lease)s::float8 * interval '1 second',
       started_at = COALESCE(started_at, statement_timestamp()),
       last_started_at = statement_timestamp(),
       idempotency_key = CASE WHEN key_holds = 'waiting' THEN NULL ELSE idempotency_key END
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
RETURNING parked, id, token, locked_by, type, payload::text, attempts, max_attempts,
          CASE WHEN key_holds = 'window' THEN idempotency_key END, timeout, slot,
          extract(epoch FROM expires_at - statement_timestamp())::float8,
          queue, priority, date_part('epoch', run_at),
          date_part('epoch', statement_timestamp()) - date_part('epoch', run_at), losses, meta ->> 'trace'
