-- Extends the leases of runs that live, expired ones too while the token is still the row's. Called by
-- PostgreSQLEngine.extend. Rows that somebody holds are being finished: they are skipped, so this never waits.
-- locked_until is in no index, so the update stays on its page.
WITH held AS MATERIALIZED (
    SELECT id
      FROM django_jobs_job
     WHERE id = ANY (%(ids)s::bigint[]) AND status = 'running'
     ORDER BY id
       FOR UPDATE SKIP LOCKED
)
UPDATE django_jobs_job job
   SET locked_until = clock_timestamp() + %(lease)s::float8 * interval '1 second'
  FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(holders)s::text[]) AS given(id, token, locked_by)
 WHERE job.id = given.id AND job.id = ANY (ARRAY(SELECT id FROM held))
   AND job.status = 'running' AND job.token = given.token AND job.locked_by = given.locked_by
RETURNING job.id, job.cancel_reason IS NOT NULL
