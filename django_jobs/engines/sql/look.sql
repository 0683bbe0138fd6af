-- Looks, without locks, for when the next job is due and whether parked jobs could be had. Called by
-- PostgreSQLEngine.look before a worker goes idle: a claim that got nothing may have met only rows in other hands.
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
), parked_lane AS (
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
      FROM parked_lane lane CROSS JOIN LATERAL (
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
)
SELECT (SELECT CASE WHEN count(*) > 0 -- greatest() alone would make 0 of no row
                    THEN greatest(extract(epoch FROM min(run_at) - statement_timestamp()), 0)::float8 END
          FROM lane
         WHERE (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[])) AND queue <> ALL (allowed.not_queues)),
       EXISTS (SELECT 1
                 FROM parked_lane
                WHERE run_at <= statement_timestamp()
                  AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
                  AND queue <> ALL (allowed.not_queues))
  FROM allowed
