-- Counts what is parked for its type, each (type, queue) for itself and no further than a limit. Called by whoever tells of
-- types that nobody knows. `kind` walks the pairs present with one index probe each; of what was counted, the one due longest.
WITH RECURSIVE kind AS (
    (SELECT type, queue
       FROM django_jobs_job
      WHERE parked IN ('type', 'pause')
      ORDER BY type, queue
      LIMIT 1)
    UNION ALL
    SELECT next.type, next.queue
      FROM kind CROSS JOIN LATERAL (
        SELECT type, queue
          FROM django_jobs_job
         WHERE parked IN ('type', 'pause') AND (type, queue) > (kind.type, kind.queue)
         ORDER BY type, queue
         LIMIT 1
      ) next
)
SELECT kind.type, kind.queue, counted.number, date_part('epoch', statement_timestamp() - counted.oldest)
  FROM kind CROSS JOIN LATERAL (
    SELECT count(*) AS number, min(run_at) AS oldest
      FROM (SELECT run_at
              FROM django_jobs_job
             WHERE parked IN ('type', 'pause') AND type = kind.type AND queue = kind.queue
             LIMIT %(most)s) found
  ) counted
