-- Counts what waits, each lane for itself and each no further than a limit. Called by the pages and by whoever measures.
-- `lane` walks the (queue, priority) pairs present with one index probe each; what is due, and what is not yet, are two ranges
-- of the claim's index in each of them. `held` walks the (type, queue, priority) of what is parked: what a pause had that is over
-- is still parked until it is claimed, and waits all the same. Of types that are paused now nothing more is read.
WITH RECURSIVE lane AS (
    (SELECT queue, priority
       FROM django_jobs_job
      WHERE status = 'ready' AND parked IS NULL
      ORDER BY queue, priority DESC
      LIMIT 1)
    UNION ALL
    SELECT next.queue, next.priority
      FROM lane CROSS JOIN LATERAL (
        (SELECT queue, priority
           FROM django_jobs_job
          WHERE status = 'ready' AND parked IS NULL AND queue = lane.queue AND priority < lane.priority
          ORDER BY queue, priority DESC
          LIMIT 1)
        UNION ALL
        (SELECT queue, priority
           FROM django_jobs_job
          WHERE status = 'ready' AND parked IS NULL AND queue > lane.queue
          ORDER BY queue, priority DESC
          LIMIT 1)
        LIMIT 1
      ) next
), held AS (
    (SELECT type, queue, priority
       FROM django_jobs_job
      WHERE parked IN ('type', 'pause')
      ORDER BY type, queue, priority DESC
      LIMIT 1)
    UNION ALL
    SELECT next.type, next.queue, next.priority
      FROM held CROSS JOIN LATERAL (
        (SELECT type, queue, priority
           FROM django_jobs_job
          WHERE parked IN ('type', 'pause') AND type = held.type AND queue = held.queue AND priority < held.priority
          ORDER BY type, queue, priority DESC
          LIMIT 1)
        UNION ALL
        (SELECT type, queue, priority
           FROM django_jobs_job
          WHERE parked IN ('type', 'pause') AND type = held.type AND queue > held.queue
          ORDER BY type, queue, priority DESC
          LIMIT 1)
        UNION ALL
        (SELECT type, queue, priority
           FROM django_jobs_job
          WHERE parked IN ('type', 'pause') AND type > held.type
          ORDER BY type, queue, priority DESC
          LIMIT 1)
        LIMIT 1
      ) next
), released AS MATERIALIZED (
    SELECT type, queue, priority
      FROM held
     WHERE NOT EXISTS (
        SELECT 1 FROM django_jobs_pause pause
         WHERE kind = 'type' AND pause.name = held.type AND (until IS NULL OR until > statement_timestamp()))
)
SELECT lane.queue, lane.priority, due.number, later.number, date_part('epoch', statement_timestamp() - due.oldest), 'waits' AS kind
  FROM lane CROSS JOIN LATERAL (
    SELECT count(*) AS number, min(run_at) AS oldest
      FROM (SELECT run_at
              FROM django_jobs_job
             WHERE status = 'ready' AND parked IS NULL AND queue = lane.queue AND priority = lane.priority
               AND run_at <= statement_timestamp()
             ORDER BY run_at
             LIMIT %(most)s) counted
  ) due CROSS JOIN LATERAL (
    SELECT count(*) AS number
      FROM (SELECT 1
              FROM django_jobs_job
             WHERE status = 'ready' AND parked IS NULL AND queue = lane.queue AND priority = lane.priority
               AND run_at > statement_timestamp()
             LIMIT %(most)s) counted
  ) later
UNION ALL
SELECT released.queue, released.priority, 0, 0, date_part('epoch', statement_timestamp() - waiting.oldest), 'waits'
  FROM released CROSS JOIN LATERAL (
    SELECT min(run_at) FILTER (WHERE parked = 'pause') AS oldest
      FROM (SELECT parked, run_at
              FROM django_jobs_job
             WHERE parked IN ('type', 'pause') AND type = released.type AND queue = released.queue
               AND priority = released.priority AND run_at <= statement_timestamp()
             ORDER BY run_at
             LIMIT greatest(%(most)s, 100)) counted
  ) waiting
 WHERE waiting.oldest IS NOT NULL
