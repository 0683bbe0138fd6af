-- Claims due jobs: of each lane in due order from a given place on, the lanes in the given order, but so many of those due
-- longest whatever their lane. Called by PostgreSQLEngine.claim.
-- `oldest` only counts, without locks, how many of them each lane has: since both picks take from the head of a lane,
-- `picked` goes on where `picked_oldest` ended. Both lock while they walk a lane in due order, so that rows another worker
-- has taken are stepped over, and stop at their limit: neither rows that are not due nor those of other lanes are read. The
-- place to begin at spares what was claimed and, for as long as somebody looks at an old snapshot, cannot be removed: every
-- claim would read all of it again. The reference that is locked carries the whole condition, since only its own qualifiers
-- are tested again after a concurrent commit. The ids are passed on as an array: as a join the planner may read the whole
-- table. A type that is paused, or that this worker does not know, is parked here, once, and keeps its place. Of a paused
-- queue nothing is touched: its lanes are left out, so that pausing and resuming a queue writes no job, however many wait
-- in it.
WITH paused AS MATERIALIZED (
    SELECT kind, name FROM django_jobs_pause WHERE until IS NULL OR until > statement_timestamp()
), allowed AS MATERIALIZED (
    SELECT ARRAY(SELECT name::text FROM paused WHERE kind = 'queue') AS not_queues,
           ARRAY(SELECT unnest(%(types)s::text[]) EXCEPT SELECT name FROM paused WHERE kind = 'type') AS types
     WHERE %(deployment)s::text IS NULL OR (SELECT name FROM django_jobs_deployment) IN ('', %(deployment)s::text)
), lane AS MATERIALIZED (
    SELECT given.queue, given.priority, to_timestamp(given.due) AS due, given.id, given.place
      FROM unnest(%(lane_queues)s::text[], %(lane_priorities)s::smallint[], %(lane_dues)s::float8[], %(lane_ids)s::bigint[])
           WITH ORDINALITY AS given(queue, priority, due, id, place)
     CROSS JOIN allowed
     WHERE given.queue <> ALL (allowed.not_queues)
), oldest AS MATERIALIZED (
    SELECT first.place, count(*) AS number
      FROM (SELECT lane.place
              FROM lane CROSS JOIN LATERAL (
                SELECT run_at, id
                  FROM django_jobs_job
                 WHERE status = 'ready' AND parked IS NULL AND run_at <= statement_timestamp()
                   AND queue = lane.queue AND priority = lane.priority AND (run_at, id) >= (lane.due, lane.id)
                 ORDER BY run_at, id
                 LIMIT %(oldest)s
              ) job
             ORDER BY job.run_at, job.id
             LIMIT %(oldest)s) first
     GROUP BY first.place
), picked_oldest AS MATERIALIZED (
    SELECT job.id
      FROM lane JOIN oldest USING (place) CROSS JOIN LATERAL (
        SELECT id
          FROM django_jobs_job
         WHERE status = 'ready' AND parked IS NULL AND run_at <= statement_timestamp()
           AND queue = lane.queue AND priority = lane.priority AND (run_at, id) >= (lane.due, lane.id)
         ORDER BY run_at, id
         LIMIT oldest.number
           FOR UPDATE SKIP LOCKED
      ) job
), picked AS MATERIALIZED (
    SELECT job.id
      FROM (SELECT lane.*, COALESCE(oldest.number, 0) AS taken
              FROM lane LEFT JOIN oldest USING (place)
             ORDER BY lane.place) lane CROSS JOIN LATERAL (
        SELECT id
          FROM django_jobs_job
         WHERE status = 'ready' AND parked IS NULL AND run_at <= statement_timestamp()
           AND queue = lane.queue AND priority = lane.priority AND (run_at, id) >= (lane.due, lane.id)
         ORDER BY run_at, id
        OFFSET lane.taken
         LIMIT %(limit)s
           FOR UPDATE SKIP LOCKED
      ) job
     LIMIT %(limit)s - (SELECT count(*) FROM picked_oldest)
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
 WHERE id = ANY (ARRAY(SELECT id FROM picked_oldest UNION ALL SELECT id FROM picked))
RETURNING parked, id, token, locked_by, type, payload::text, attempts, max_attempts,
          CASE WHEN key_holds = 'window' THEN idempotency_key END, timeout, slot,
          extract(epoch FROM expires_at - statement_timestamp())::float8,
          queue, priority, date_part('epoch', run_at),
          date_part('epoch', statement_timestamp()) - date_part('epoch', run_at), losses, meta ->> 'trace'
