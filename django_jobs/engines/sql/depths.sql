-- Counts what waits, each lane for itself and each no further than a limit. Called by the pages and by whoever measures.
-- `lane` walks the (queue, priority) pairs present with one index probe each; what is due, and what is not yet, are two ranges
-- of the claim's index in each of them.
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
)
SELECT lane.queue, lane.priority, due.number, later.number, date_part('epoch', statement_timestamp() - due.oldest)
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
