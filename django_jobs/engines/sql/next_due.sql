-- Looks, without locks, for when the next job of known lanes is due, each read from its place on. Called by
-- PostgreSQLEngine.next_due before a worker goes idle: a claim that got nothing may have met only rows in other hands.
SELECT min(greatest(date_part('epoch', job.run_at) - date_part('epoch', statement_timestamp()), 0))
  FROM unnest(%(lane_queues)s::text[], %(lane_priorities)s::smallint[], %(lane_dues)s::float8[], %(lane_ids)s::bigint[])
       AS lane(queue, priority, due, id)
 CROSS JOIN LATERAL (
    SELECT run_at
      FROM django_jobs_job
     WHERE status = 'ready' AND parked IS NULL AND queue = lane.queue AND priority = lane.priority
       AND (run_at, id) >= (to_timestamp(lane.due), lane.id)
     ORDER BY run_at, id
     LIMIT 1
  ) job
 WHERE NOT EXISTS (SELECT 1
                     FROM django_jobs_pause
                    WHERE (until IS NULL OR until > statement_timestamp()) AND kind = 'queue' AND name = lane.queue)
