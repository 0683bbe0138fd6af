-- Ends a batch of runs as done, each fenced; as cancelled when a person asked for that while they ran. Called by
-- PostgreSQLEngine.complete.
-- The rows are locked in id order first, so that two batches, or a batch and a heartbeat, can never deadlock.
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(holders)s::text[], %(results)s::text[])
               AS given(id, token, locked_by, result)
), held AS MATERIALIZED (
    SELECT id
      FROM django_jobs_job
     WHERE id = ANY (%(ids)s::bigint[]) AND status = 'running'
     ORDER BY id
       FOR UPDATE
)
UPDATE django_jobs_job job
   SET status = CASE WHEN job.cancel_reason IS NULL THEN 'done' ELSE 'cancelled' END,
       finished_at = clock_timestamp(), locked_by = NULL, locked_until = NULL, losses = 0, suspect = false,
       result = ended.result::jsonb,
       idempotency_key = CASE WHEN job.key_holds = 'window' THEN job.idempotency_key END
  FROM ended
 WHERE job.id = ended.id AND job.id = ANY (ARRAY(SELECT id FROM held))
   AND job.status = 'running' AND job.token = ended.token AND job.locked_by = ended.locked_by
RETURNING job.id, job.status
