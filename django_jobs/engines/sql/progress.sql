-- Stores what running handlers reported, each fenced. Called by PostgreSQLEngine.store_progress.
WITH held AS MATERIALIZED (
    SELECT id
      FROM django_jobs_job
     WHERE id = ANY (%(ids)s::bigint[]) AND status = 'running'
     ORDER BY id
       FOR UPDATE SKIP LOCKED
)
UPDATE django_jobs_job job
   SET progress = given.progress::jsonb
  FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(holders)s::text[], %(reports)s::text[])
           AS given(id, token, locked_by, progress)
 WHERE job.id = given.id AND job.id = ANY (ARRAY(SELECT id FROM held))
   AND job.status = 'running' AND job.token = given.token AND job.locked_by = given.locked_by
