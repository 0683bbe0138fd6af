-- Claims due jobs, the highest priority first, then in due order. Called by PostgreSQLEngine.claim.
-- `lane` walks the (queue, priority) pairs present with one index probe each; `picked` walks each lane in due order and
-- locks while it walks, so that rows another worker has taken are stepped over, and stops at the limit: neither rows
-- that are not due nor those of other lanes are read. The reference that is locked carries the whole condition, since
-- only its own qualifiers are tested again after a concurrent commit. The ids are passed on as an array: as a join the
-- planner may read the whole table. A type that is paused, or that this worker
-- does not know, is parked here, once, and keeps its place. Of a paused queue nothing is touched: its lanes are left out,
-- so that pausing and resuming a queue writes no job, however many wait in it.
WITH RECURSIVE paused AS MATERIALIZED (
    SELECT kind, name FROM django_jobs_pause WHERE until IS NULL OR until > statement_timestamp()
), allowed AS MATERIALIZED (
    SELECT ARRAY(SELECT name::text FROM paused WHERE kind = 'queue') AS not_queues,
           ARRAY(SELECT unnest(%(types)s::text[]) EXCEPT SELECT name FROM paused WHERE kind = 'type') AS types
), lane AS (
    (SELECT queue, priority, run_at
       FROM django_jobs_job
      WHERE status = 'ready' AND parked IS NULL
      ORDER BY queue, priority DESC, run_at
      LIMIT 1)
    UNION ALL
    SELECT next.queue, next.priority, next.run_at
      FROM lane CROSS JOIN LATERAL (
        (SELECT queue, priority, run_at
           FROM django_jobs_job
          WHERE status = 'ready' AND parked IS NULL AND queue = lane.queue AND priority < lane.priority
          ORDER BY queue, priority DESC, run_at
          LIMIT 1)
        UNION ALL
        (SELECT queue, priority, run_at
           FROM django_jobs_job
          WHERE status = 'ready' AND parked IS NULL AND queue > lane.queue
          ORDER BY queue, priority DESC, run_at
          LIMIT 1)
        LIMIT 1
      ) next
), picked AS (
    SELECT due.id
      FROM (SELECT lane.queue, lane.priority
              FROM lane CROSS JOIN allowed
             WHERE lane.run_at <= statement_timestamp()
               AND (%(queues)s::text[] IS NULL OR lane.queue = ANY (%(queues)s::text[]))
               AND lane.queue <> ALL (allowed.not_queues)
             ORDER BY lane.priority DESC, lane.run_at) open_lane
     CROSS JOIN LATERAL (
        SELECT id
          FROM django_jobs_job
         WHERE status = 'ready' AND parked IS NULL AND run_at <= statement_timestamp()
           AND queue = open_lane.queue AND priority = open_lane.priority
         ORDER BY run_at, id
         LIMIT %(limit)s
           FOR UPDATE SKIP LOCKED
     ) due
     LIMIT %(limit)s
)
UPDATE django_jobs_job job
   SET status = CASE WHEN type = ANY (allowed.types) THEN 'running' ELSE status END,
       parked = CASE WHEN type = ANY (allowed.types) THEN NULL WHEN type = ANY (%(types)s::text[]) THEN 'pause' ELSE 'type' END,
       token = token + CASE WHEN type = ANY (allowed.types) THEN 1 ELSE 0 END,
       locked_by = CASE WHEN type = ANY (allowed.types) THEN %(locked_by)s END,
       locked_until = CASE WHEN type = ANY (allowed.types)
                           THEN clock_timestamp() + %(lease)s::float8 * interval '1 second' END,
       started_at = CASE WHEN type = ANY (allowed.types) THEN COALESCE(started_at, statement_timestamp()) ELSE started_at END,
       last_started_at = CASE WHEN type = ANY (allowed.types) THEN statement_timestamp() ELSE last_started_at END,
       idempotency_key = CASE WHEN key_holds = 'waiting' AND type = ANY (allowed.types) THEN NULL ELSE idempotency_key END
  FROM allowed
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
RETURNING priority, run_at, parked, id, token, type, payload::text, attempts, max_attempts,
          CASE WHEN key_holds = 'window' THEN idempotency_key END, timeout, slot,
          extract(epoch FROM expires_at - statement_timestamp())::float8
