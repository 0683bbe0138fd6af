-- Looks, without locks, which lanes there are, when the next job is due, and whether parked jobs could be had. Called by
-- PostgreSQLEngine.look, about once a second: it reads each lane from its beginning, and so finds what claims, which do not,
-- have passed: jobs that were committed late or given back.
-- `lane` walks the (queue, priority) pairs present with one index probe each.
WITH RECURSIVE paused AS MATERIALIZED (
    SELECT kind, name FROM django_jobs_pause WHERE until IS NULL OR until > statement_timestamp()
), allowed AS MATERIALIZED (
    SELECT ARRAY(SELECT name::text FROM paused WHERE kind = 'queue') AS not_queues,
           ARRAY(SELECT unnest(%(types)s::text[]) EXCEPT SELECT name FROM paused WHERE kind = 'type') AS types
), lane AS (
    (SELECT queue, priority, run_at, id
       FROM django_jobs_job
      WHERE status = 'ready' AND parked IS NULL
      ORDER BY queue, priority DESC, run_at, id
      LIMIT 1)
    UNION ALL
    SELECT next.queue, next.priority, next.run_at, next.id
      FROM lane CROSS JOIN LATERAL (
        (SELECT queue, priority, run_at, id
           FROM django_jobs_job
          WHERE status = 'ready' AND parked IS NULL AND queue = lane.queue AND priority < lane.priority
          ORDER BY queue, priority DESC, run_at, id
          LIMIT 1)
        UNION ALL
        (SELECT queue, priority, run_at, id
           FROM django_jobs_job
          WHERE status = 'ready' AND parked IS NULL AND queue > lane.queue
          ORDER BY queue, priority DESC, run_at, id
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
), open_lane AS MATERIALIZED (
    SELECT lane.*
      FROM lane CROSS JOIN allowed
     WHERE (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[])) AND queue <> ALL (allowed.not_queues)
)
SELECT open_lane.due_in,
       EXISTS (SELECT 1
                 FROM parked_lane
                WHERE run_at <= statement_timestamp()
                  AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
                  AND queue <> ALL (allowed.not_queues)),
       open_lane.queues, open_lane.priorities, open_lane.dues, open_lane.ids, date_part('epoch', statement_timestamp())
  FROM allowed CROSS JOIN (
    SELECT CASE WHEN count(*) > 0 -- greatest() alone would make 0 of no row
                THEN greatest(date_part('epoch', min(run_at)) - date_part('epoch', statement_timestamp()), 0) END AS due_in,
           array_agg(queue::text) AS queues, array_agg(priority) AS priorities,
           array_agg(date_part('epoch', run_at)) AS dues, array_agg(id) AS ids
      FROM open_lane
  ) open_lane
