-- Ends a batch of runs as done, each fenced; as cancelled when a person asked for that while they ran. Called by
-- PostgreSQLEngine.complete, which gives the runs in id order.
-- `held` locks one row after the other in that order, so that two batches, or a batch and a heartbeat, can never
-- deadlock, and tells by each row's own condition whether it is still the run's: one look at the key's index each. A join
-- in its place compared every row of a batch with every run of it (400 runs: 64 us each, and 12 so). The results come as
-- one object by id for the same reason.
WITH held AS MATERIALIZED (
    SELECT job.id
      FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(holders)s::text[]) AS given(id, token, locked_by)
     CROSS JOIN LATERAL (
        SELECT id
          FROM django_jobs_job
         WHERE id = given.id AND token = given.token AND locked_by IS NOT DISTINCT FROM given.locked_by
           FOR UPDATE
      ) job
)
UPDATE django_jobs_job
   SET status = CASE WHEN cancel_reason IS NULL THEN 'done' ELSE 'cancelled' END,
       finished_at = clock_timestamp(), locked_by = NULL, locked_until = NULL, losses = 0, suspect = false,
       result = CASE WHEN %(results)s::jsonb IS NOT NULL
                     THEN (SELECT %(results)s::jsonb) -> (id || ':' || token) END,
       idempotency_key = CASE WHEN key_holds = 'window' THEN idempotency_key END
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND locked_by IS NOT NULL
RETURNING id, status
